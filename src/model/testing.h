#pragma once

// For tests only: folders, hand-made checkpoints, and one rank with its pools that runs steps.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/world_of_one.h"
#include "model/checkpoint.h"
#include "model/fabricate.h"
#include "model/fabricate_plan.h"
#include "model/fabricate_text.h"
#include "model/forward.h"
#include "ops/backend.h"
#include "ops/reference/backend.h"

namespace tandem::model::testing {

// A new empty folder that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

// Three linear layers and a full one, as small as the head widths allow.
inline Geometry small_geometry(bool tied = true) {
  return {.name = "small",
          .hidden = 64,
          .intermediate = 96,
          .query_heads = 2,
          .kv_heads = 1,
          .key_heads = 2,
          .value_heads = 4,
          .vocab = 520,
          .max_context = 4096,
          .tied = tied,
          .layers = layer_pattern(4, 4),
          .eos_ids = {made_end_of_text(520)}};
}

// What a hand-made safetensors file holds.
struct RawTensor {
  std::string dtype = "BF16";
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline std::string safetensors_bytes(std::string header, std::string_view data) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data);
}

inline void write_safetensors(const std::filesystem::path& path, const RawTensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape = shape_text(tensor.shape);
    header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":" + shape +
              ",\"data_offsets\":[" + std::to_string(data.size()) + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  write_file(path, safetensors_bytes(header, data));
}

// Every text tensor of the geometry with bits that depend on tensor and index, none of them NaN or
// infinite (bit 14 is clear).
inline RawTensors index_filled(const Geometry& geometry) {
  RawTensors tensors;
  for (const TensorSpec& spec : text_tensors(geometry)) {
    RawTensor raw{.dtype = spec.float32 ? "F32" : "BF16", .shape = spec.shape};
    raw.bytes.resize(static_cast<std::size_t>(spec.bytes()));
    const std::uint64_t key = tensor_key(7, spec.name);
    for (std::int64_t i = 0; i < spec.elements(); ++i) {
      const auto bits = static_cast<std::uint16_t>(mixed_bits(key, static_cast<std::uint64_t>(i)) & 0xbfff);
      if (spec.float32) {
        const float value = to_float(bf16{bits});
        std::memcpy(raw.bytes.data() + i * 4, &value, 4);
      } else {
        std::memcpy(raw.bytes.data() + i * 2, &bits, 2);
      }
    }
    tensors.emplace(spec.name, std::move(raw));
  }
  return tensors;
}

// A fabricated checkpoint in its own folder, opened.
struct Fabricated {
  TempFolder folder;
  std::unique_ptr<Checkpoint> checkpoint;

  explicit Fabricated(const Geometry& geometry, std::uint64_t seed = 1) {
    const auto made = fabricate({.geometry = geometry, .folder = folder.path() / "model", .seed = seed, .threads = 1});
    if (!made) ADD_FAILURE() << made.error().message;
    auto opened = Checkpoint::open(folder.path() / "model", geometry);
    if (!opened) ADD_FAILURE() << opened.error().message;
    checkpoint = std::make_unique<Checkpoint>(std::move(*opened));
  }
};

// One piece of one request in a test step. Pages are named outright: no books here.
struct TestRow {
  int slot = 0;
  int base_pos = 0;
  std::vector<TokenId> ids;
  std::vector<int> pages;
  bool decode = false;
  bool fresh = false;  // the request's first row
};

// One rank with pools. Every token of every row is scored (target 0, 20 alternatives), so that a step's
// choices show the whole distribution's head at each position.
class TestRank {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kPages = 24;
  static constexpr int kMaxTokens = 512;

  TestRank(const Checkpoint& checkpoint, RankId rank, int world, LinearAttention mode,
           std::unique_ptr<comm::Communicator> comm, std::unique_ptr<ops::Backend> backend = ops::make_reference_backend())
      : backend_(std::move(backend)), comm_(std::move(comm)) {
    const Geometry& g = checkpoint.geometry();
    const Partition partition = *Partition::make(g, rank, world, mode);
    const ops::StepLimits limits{.max_tokens = kMaxTokens, .max_rows = 16, .max_context = kPages * ops::kPageTokens,
                                 .max_logit_rows = 48, .slots = kSlots, .pages = kPages, .vocab = g.vocab};
    check(backend_->reserve(limits));
    auto weights = Weights::load(*backend_, checkpoint, partition);
    check(weights);
    auto forward = Forward::make(*backend_, *comm_, g, partition, std::move(*weights),
                                 {.limits = limits, .hash_residual = true});
    check(forward);
    forward_ = std::make_unique<Forward>(std::move(*forward));
    make_pools(g, partition);
  }

  explicit TestRank(const Checkpoint& checkpoint)
      : TestRank(checkpoint, RankId{0}, 1, LinearAttention::Replicated,
                 std::move(*comm::make_world_of_one()->join(RankId{0}, nullptr))) {}

  // Rows in the order given; decode rows first is the caller's duty. One choice per token of the step.
  std::vector<ops::TokenChoice> run(const std::vector<TestRow>& rows) {
    std::vector<TokenId> tokens;
    std::vector<ops::StepRow> step_rows;
    std::vector<PageId> pages;
    std::vector<ops::LogitRow> logit_rows;
    int decode_rows = 0;
    for (const TestRow& row : rows) {
      const int count = static_cast<int>(row.ids.size());
      step_rows.push_back({.kind = row.decode ? ops::RowKind::Decode : ops::RowKind::Prefill,
                           .token_begin = static_cast<std::int32_t>(tokens.size()),
                           .tokens = count,
                           .base_pos = row.base_pos,
                           .slot = SlotId{row.slot},
                           .page_begin = static_cast<std::int32_t>(pages.size()),
                           .page_count = static_cast<std::int32_t>(row.pages.size()),
                           .sampling = row.fresh ? &greedy_ : nullptr});
      for (int i = 0; i < count; ++i) {
        logit_rows.push_back({.token = static_cast<std::int32_t>(tokens.size()) + i,
                              .slot = SlotId{row.slot},
                              .position = row.base_pos + i + 1,
                              .target = 0,
                              .top_logprobs = ops::kMaxTopLogprobs});
      }
      tokens.insert(tokens.end(), row.ids.begin(), row.ids.end());
      for (const int page : row.pages) pages.push_back(PageId{page});
      decode_rows += row.decode ? 1 : 0;
    }
    const auto ticket = forward_->run({.tokens = tokens, .rows = step_rows, .pages = pages, .logit_rows = logit_rows,
                                       .decode_rows = decode_rows});
    check(ticket);
    if (!ticket) return {};
    const auto choices = backend_->wait(*ticket);
    check(choices);
    return choices ? std::vector<ops::TokenChoice>(choices->begin(), choices->end()) : std::vector<ops::TokenChoice>{};
  }

  // A whole prompt in chunks that end at these lengths (the last one is the prompt's).
  std::vector<ops::TokenChoice> run_chunks(const std::vector<TokenId>& ids, const std::vector<int>& ends, int slot,
                                           const std::vector<int>& pages) {
    std::vector<ops::TokenChoice> all;
    int begin = 0;
    for (const int end : ends) {
      const auto part = run({{.slot = slot, .base_pos = begin, .ids = {ids.begin() + begin, ids.begin() + end},
                              .pages = pages, .fresh = begin == 0}});
      all.insert(all.end(), part.begin(), part.end());
      begin = end;
    }
    return all;
  }

  // What a freed slot and freed pages look like in debug mode.
  void poison_pools() {
    check(backend_->fill_bytes(kv_memory_, 0xff, kv_bytes_));
    check(backend_->fill_bytes(state_memory_, 0xff, state_bytes_));
  }

  ops::Backend& backend() { return *backend_; }
  Forward& forward() { return *forward_; }
  comm::Communicator& communicator() { return *comm_; }
  std::vector<std::uint8_t> state_bytes(int slot) {
    std::vector<std::uint8_t> bytes(state_bytes_ / (kSlots + 1));
    check(backend_->copy_to_host(bytes.data(), static_cast<std::byte*>(state_memory_) + bytes.size() * static_cast<std::size_t>(slot), bytes.size()));
    return bytes;
  }

 private:
  template <class T>
  static void check(const Result<T>& result) {
    if (!result) ADD_FAILURE() << result.error().message;
  }

  void make_pools(const Geometry& g, const Partition& partition) {
    PoolViews views;
    const std::int64_t half = std::int64_t{partition.kv_heads()} * ops::kPageTokens * ops::kHeadDim;
    const std::int64_t page = 2 * half * g.full_layers();
    kv_bytes_ = static_cast<std::size_t>(page * (kPages + 1)) * 2;
    kv_memory_ = *backend_->allocate(kv_bytes_, ops::MemoryUse::KvPages, "test pages");
    for (int i = 0; i < g.full_layers(); ++i) {
      views.kv.push_back({static_cast<bf16*>(kv_memory_) + 2 * half * i, page, half, partition.kv_heads()});
    }
    const std::int64_t conv = std::int64_t{partition.delta().channels()} * ops::kConvWindow;
    const std::int64_t state = std::int64_t{partition.delta().value_heads} * 128 * 128;
    const std::int64_t slot = g.linear_layers() * (state * 4 + conv * 2);
    state_bytes_ = static_cast<std::size_t>(slot * (kSlots + 1));
    state_memory_ = *backend_->allocate(state_bytes_, ops::MemoryUse::StateSlots, "test slots");
    auto* base = static_cast<std::byte*>(state_memory_);
    for (int i = 0; i < g.linear_layers(); ++i) {
      views.state.push_back({reinterpret_cast<bf16*>(base + g.linear_layers() * state * 4 + i * conv * 2), slot / 2,
                             reinterpret_cast<float*>(base + i * state * 4), slot / 4});
    }
    forward_->bind(std::move(views));
  }

  ops::SamplingParams greedy_{.temperature = 0.0f};
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<Forward> forward_;
  void* kv_memory_ = nullptr;
  void* state_memory_ = nullptr;
  std::size_t kv_bytes_ = 0;
  std::size_t state_bytes_ = 0;
};

inline std::vector<TokenId> random_ids(std::uint64_t seed, int count, int vocab) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<TokenId>(mixed_bits(seed, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocab)));
  }
  return ids;
}

// Bit equality of everything that a choice says.
inline void expect_same(const std::vector<ops::TokenChoice>& a, const std::vector<ops::TokenChoice>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].non_finite, 0) << what << " at " << i;
    ASSERT_EQ(a[i].logprob, b[i].logprob) << what << " at " << i;
    ASSERT_EQ(a[i].top_ids, b[i].top_ids) << what << " at " << i;
    ASSERT_EQ(a[i].top_logprobs, b[i].top_logprobs) << what << " at " << i;
  }
}

}  // namespace tandem::model::testing
