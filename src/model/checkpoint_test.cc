#include "model/checkpoint.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "model/testing.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;
using testing::index_filled;
using testing::RawTensor;
using testing::RawTensors;
using testing::replace_all;
using testing::small_geometry;
using testing::TempFolder;
using testing::write_file;
using testing::write_safetensors;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kNorm = "model.language_model.norm.weight";
constexpr const char* kZ = "model.language_model.layers.0.linear_attn.in_proj_z.weight";

// A small checkpoint in memory, which each case damages before it is written.
struct Case {
  Geometry geometry = small_geometry();
  RawTensors tensors = index_filled(geometry);
  TempFolder folder;

  [[nodiscard]] fs::path path(const char* name) const { return folder.path() / name; }
  void write_single() const { write_safetensors(path("model.safetensors"), tensors); }
  // Embedding and layers 0 and 1 in the first file, the rest in the second.
  void write_sharded() const {
    RawTensors first, second;
    std::string map;
    for (const auto& [name, tensor] : tensors) {
      const bool early = name.find("embed") != name.npos || name.find("layers.0.") != name.npos || name.find("layers.1.") != name.npos;
      (early ? first : second).emplace(name, tensor);
      map += (map.empty() ? "" : ",") + ("\"" + name + "\":\"" + (early ? kFirst : kSecond) + "\"");
    }
    write_safetensors(path(kFirst), first);
    write_safetensors(path(kSecond), second);
    write_file(path(kIndex), R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
  }
  [[nodiscard]] Result<Checkpoint> open() const { return Checkpoint::open(folder.path(), geometry); }

  void expect_refused(std::initializer_list<std::string_view> parts) const {
    const auto opened = open();
    ASSERT_FALSE(opened);
    for (const std::string_view part : parts) {
      EXPECT_NE(opened.error().message.find(part), std::string::npos) << opened.error().message;
    }
  }
  void expect_loads() const {
    const auto opened = open();
    ASSERT_TRUE(opened) << opened.error().message;
    const StoredTensor& norm = opened->tensor(Role::FinalNorm);
    EXPECT_EQ(std::memcmp(norm.data.data(), index_filled(geometry).at(kNorm).bytes.data(), norm.data.size()), 0);
  }
  void rename(const std::string& from, const std::string& to) {
    tensors.emplace(to, std::move(tensors.at(from)));
    tensors.erase(from);
  }
};

TEST(Checkpoint, SingleAndShardedAndTextOnlyNamesGiveTheSameTensors) {  // B174
  Case c;
  c.write_single();
  c.expect_loads();
  Case sharded;
  sharded.write_sharded();
  sharded.expect_loads();
  Case flat;
  for (const TensorSpec& spec : text_tensors(flat.geometry)) {
    flat.rename(spec.name, std::string(kFlatPrefix) + spec.name.substr(kNestedPrefix.size()));
  }
  flat.write_single();
  flat.expect_loads();
}

TEST(Checkpoint, VisionAndMtpTensorsAreSkippedByName) {
  Case c;
  c.tensors["model.visual.blocks.0.norm1.weight"] = {"BF16", {4}, std::string(8, '\1')};
  c.tensors["mtp.fc.weight"] = {"F16", {2, 2}, std::string(8, '\1')};
  c.write_single();
  ::testing::internal::CaptureStderr();
  c.expect_loads();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("skipping 1 vision and 1 multi-token-prediction tensors"), std::string::npos);
}

TEST(Checkpoint, BothTypesOfTheFloat32TensorsAreAccepted) {  // spec 1.2: later families store bf16
  Case c;
  c.tensors["model.language_model.layers.0.linear_attn.A_log"] = {"BF16", {4}, std::string(8, '\0')};
  c.tensors["model.language_model.layers.0.linear_attn.norm.weight"] = {"BF16", {128}, std::string(256, '\0')};
  c.write_single();
  c.expect_loads();
}

TEST(Checkpoint, MissingRenamedAndUnknownTensorsAreNamed) {  // B176
  Case missing;
  missing.tensors.erase("model.language_model.embed_tokens.weight");
  missing.write_single();
  missing.expect_refused({"1 tensor(s) missing: model.language_model.embed_tokens.weight", "0 unexpected"});
  Case renamed;
  renamed.rename(kZ, "model.language_model.layers.0.linear_attn.in_proj_zz.weight");
  renamed.write_single();
  renamed.expect_refused({"1 tensor(s) missing", kZ, "1 unexpected", "in_proj_zz"});
  Case unknown;
  unknown.tensors["model.language_model.layers.0.mlp.gate_proj.bias"] = {"BF16", {96}, std::string(192, '\0')};
  unknown.write_single();
  unknown.expect_refused({"1 unexpected: model.language_model.layers.0.mlp.gate_proj.bias"});
  Case extra_layer;
  extra_layer.tensors["model.language_model.layers.4.input_layernorm.weight"] = {"BF16", {64}, std::string(128, '\0')};
  extra_layer.write_single();
  extra_layer.expect_refused({"layers.4.input_layernorm.weight"});
}

TEST(Checkpoint, AWrongShapeOrTypeNamesFileTensorExpectedAndFound) {
  Case shape;
  shape.tensors.at(kNorm) = {"BF16", {8, 8}, std::string(128, '\0')};
  shape.write_single();
  shape.expect_refused({"model.safetensors: tensor model.language_model.norm.weight: expected BF16 [64], found BF16 [8, 8]"});
  Case type;
  type.tensors.at(kNorm) = {"F32", {64}, std::string(256, '\0')};
  type.write_single();
  type.expect_refused({"expected BF16 [64], found F32 [64]"});
  Case half;
  half.tensors.at(kNorm).dtype = "F16";
  half.write_single();
  half.expect_refused({"found F16"});
  Case decay;
  decay.tensors.at("model.language_model.layers.0.linear_attn.A_log") = {"F64", {4}, std::string(32, '\0')};
  decay.write_single();
  decay.expect_refused({"expected F32 or BF16 [4], found F64 [4]"});
  Case transposed;
  transposed.tensors.at(kZ).shape = {64, 512};
  transposed.write_single();
  transposed.expect_refused({kZ, "expected BF16 [512, 64], found BF16 [64, 512]"});
}

TEST(Checkpoint, TyingAndTheHeadMustAgree) {  // B170, B171, B172
  Case equal;
  equal.tensors["lm_head.weight"] = equal.tensors.at("model.language_model.embed_tokens.weight");
  equal.write_single();
  equal.expect_loads();
  Case differs;
  differs.tensors["lm_head.weight"] = differs.tensors.at("model.language_model.embed_tokens.weight");
  differs.tensors["lm_head.weight"].bytes[5] ^= 1;
  differs.write_single();
  differs.expect_refused({"tie_word_embeddings true", "lm_head.weight differs"});
  Case no_head;
  no_head.geometry.tied = false;
  no_head.write_single();
  no_head.expect_refused({"lm_head.weight (config.json says tie_word_embeddings false)"});
  Case untied;
  untied.geometry.tied = false;
  untied.tensors = index_filled(untied.geometry);
  untied.write_single();
  untied.expect_loads();
  EXPECT_NE(untied.open()->tensor(Role::Head).data.data(), untied.open()->tensor(Role::Embedding).data.data());
}

TEST(Checkpoint, MissingShardsAreAllListed) {  // B161
  Case c;
  c.write_sharded();
  fs::remove(c.path(kFirst));
  fs::rename(c.path(kSecond), c.path("other.safetensors"));
  c.expect_refused({"names 2 file(s) that are missing", kFirst, kSecond});
  Case folder;
  folder.write_sharded();
  fs::remove(folder.path(kSecond));
  fs::create_directory(folder.path(kSecond));
  folder.expect_refused({kSecond, "not a regular file"});
}

TEST(Checkpoint, AnIndexCannotLeaveTheFolder) {  // B161
  for (const char* escape : {"../x.safetensors", "/x.safetensors", "a/x.safetensors", "a\\\\x.safetensors", "..", "", "x.bin"}) {
    Case c;
    c.write_sharded();
    std::string index = testing::read_file(c.path(kIndex));
    replace_all(index, kSecond, escape);
    write_file(c.path(kIndex), index);
    c.expect_refused({kIndex, "must be the name of a .safetensors file in the same folder"});
  }
}

TEST(Checkpoint, BrokenIndexFilesAreRefused) {  // B162
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "no object weight_map"},
           {"not json", "not a JSON object"},
           {"[]", "not a JSON object"},
           {"", "is empty"},
           {R"({"weight_map":{}})", "names no tensor"},
           {R"({"weight_map":[]})", "no object weight_map"},
           {R"({"weight_map":{"a":7}})", "the file of tensor a is not a string"},
           {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "tensor a is given twice"}}) {
    Case c;
    c.write_sharded();
    write_file(c.path(kIndex), text);
    c.expect_refused({kIndex, part});
  }
}

TEST(Checkpoint, ATensorThatItsShardLacksIsNamed) {
  Case c;
  c.write_sharded();
  std::string index = testing::read_file(c.path(kIndex));
  replace_all(index, std::string("\"") + kNorm + "\":\"" + kSecond, std::string("\"") + kNorm + "\":\"" + kFirst);
  write_file(c.path(kIndex), index);
  c.expect_refused({std::string(kNorm) + " in " + kFirst});
}

TEST(Checkpoint, OfTwoCopiesTheIndexedOneCounts) {  // B168
  Case c;
  c.write_sharded();
  RawTensors first;
  for (const auto& [name, tensor] : c.tensors) {
    if (name.find("embed") != name.npos || name.find("layers.0.") != name.npos || name.find("layers.1.") != name.npos) first.emplace(name, tensor);
  }
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{64}, std::vector<std::int64_t>{32}}) {
    first[kNorm] = {"BF16", shape, std::string(static_cast<std::size_t>(shape[0]) * 2, '\7')};
    write_safetensors(c.path(kFirst), first);
    ::testing::internal::CaptureStderr();
    c.expect_loads();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(kFirst), std::string::npos) << log;
    EXPECT_NE(log.find(kSecond), std::string::npos) << log;
  }
}

TEST(Checkpoint, StrayWeightsAreIgnoredWithALogLine) {  // B169
  Case c;
  c.write_sharded();
  write_safetensors(c.path("model.safetensors"), {{kNorm, {"BF16", {64}, std::string(128, '\7')}}});
  write_file(c.path("consolidated.safetensors"), "not even a header");
  ::testing::internal::CaptureStderr();
  c.expect_loads();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("consolidated.safetensors, model.safetensors"), std::string::npos) << log;
}

TEST(Checkpoint, AFolderWithoutWeightsIsRefused) {  // B162
  Case c;
  write_file(c.path("config.json"), "{}");
  write_file(c.path("tokenizer.json"), "{}");
  c.expect_refused({"has neither model.safetensors.index.json nor model.safetensors", "none"});
  write_file(c.path("pytorch_model.bin"), "x");
  c.expect_refused({"pytorch_model.bin"});
  fs::create_directory(c.path("model.safetensors"));
  c.expect_refused({"model.safetensors", "not a regular file"});
  fs::remove(c.path("model.safetensors"));
  write_file(c.path("model.safetensors"), "");
  c.expect_refused({"model.safetensors", "is empty"});
  EXPECT_EQ(Checkpoint::open(c.path("nowhere"), c.geometry).error().kind, ErrorKind::NotFound);
  EXPECT_NE(Checkpoint::open(c.path("config.json"), c.geometry).error().message.find("is not a folder"), std::string::npos);
}

TEST(Checkpoint, ATruncatedShardIsRefusedNamingIt) {
  Case c;
  c.write_sharded();
  fs::resize_file(c.path(kSecond), fs::file_size(c.path(kSecond)) - 10);
  c.expect_refused({kSecond, "lies at bytes"});
}

TEST(Checkpoint, LinksAreFollowedAndBrokenOnesNamed) {  // B180
  Case c;
  c.write_sharded();
  fs::create_directory(c.path("blobs"));
  fs::rename(c.path(kFirst), c.path("blobs/0a1b2c"));
  fs::create_symlink("blobs/0a1b2c", c.path(kFirst));  // relative, and without a file ending
  c.expect_loads();
  const TempFolder elsewhere;
  fs::create_directory_symlink(c.folder.path(), elsewhere.path() / "model");
  EXPECT_TRUE(Checkpoint::open(elsewhere.path() / "model", c.geometry));

  fs::remove(c.path("blobs/0a1b2c"));
  c.expect_refused({kFirst, "is a link to blobs/0a1b2c, which cannot be opened"});
  fs::remove(c.path(kFirst));
  fs::create_symlink(kFirst, c.path(kFirst));
  c.expect_refused({kFirst, "Too many levels"});
}

// While it lives, this thread reads no file that its owner may not read, even as the superuser.
class WithoutPrivilegedReads {
 public:
  WithoutPrivilegedReads() {
    EXPECT_EQ(::syscall(SYS_capget, &header_, before_.data()), 0);
    auto less = before_;
    less[0].effective &= ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    EXPECT_EQ(::syscall(SYS_capset, &header_, less.data()), 0);
  }
  ~WithoutPrivilegedReads() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_.data()), 0); }
  WithoutPrivilegedReads(const WithoutPrivilegedReads&) = delete;
  WithoutPrivilegedReads& operator=(const WithoutPrivilegedReads&) = delete;

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

TEST(Checkpoint, APipeAndAnUnreadableFileAreRefusedAtOnce) {  // B180
  Case c;
  c.write_single();
  fs::remove(c.path("model.safetensors"));
  ASSERT_EQ(::mkfifo(c.path("model.safetensors").c_str(), 0600), 0);
  c.expect_refused({"model.safetensors is not a regular file"});
  fs::remove(c.path("model.safetensors"));
  c.write_single();
  fs::permissions(c.path("model.safetensors"), fs::perms::none);
  const WithoutPrivilegedReads none;
  c.expect_refused({"model.safetensors cannot be opened: Permission denied"});
  fs::permissions(c.path("model.safetensors"), fs::perms::owner_read);
  c.expect_loads();
  // The same behind a link: both names are told.
  fs::rename(c.path("model.safetensors"), c.path("blob"));
  fs::create_symlink("blob", c.path("model.safetensors"));
  fs::permissions(c.path("blob"), fs::perms::none);
  c.expect_refused({"model.safetensors is a link to blob, which cannot be opened: Permission denied"});
}

TEST(Checkpoint, AMisalignedTensorIsRefused) {
  Case c;
  std::string header, data;
  for (const auto& [name, tensor] : c.tensors) {
    header += (header.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":" + shape_text(tensor.shape) +
              ",\"data_offsets\":[" + std::to_string(data.size()) + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  if (header.size() % 2 == 0) header += " ";
  write_file(c.path("model.safetensors"), testing::safetensors_bytes(header, data));
  c.expect_refused({"does not begin at a multiple of 2 bytes"});
}

}  // namespace
}  // namespace tandem::model
