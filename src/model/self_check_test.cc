#include "model/self_check.h"

#include <gtest/gtest.h>

#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::index_filled;
using testing::RawTensors;
using testing::small_geometry;
using testing::TempFolder;
using testing::TestRank;

Result<void> check(const RawTensors& tensors) {
  const TempFolder folder;
  testing::write_safetensors(folder.path() / "model.safetensors", tensors);
  const auto checkpoint = Checkpoint::open(folder.path(), small_geometry());
  if (!checkpoint) return fail(checkpoint.error());
  TestRank rank(*checkpoint);
  return self_check(rank.backend(), rank.forward(), SlotId{rank.forward().limits().slots}, PageId{rank.forward().limits().pages});
}

RawTensors fabricated_tensors() {
  const testing::Fabricated model(small_geometry());
  RawTensors tensors;
  for (const TensorSpec& spec : text_tensors(small_geometry())) {
    const StoredTensor& stored = model.checkpoint->tensor(spec.role, spec.layer);
    tensors[spec.name] = {std::string(stored.dtype.name), stored.shape,
                          std::string(reinterpret_cast<const char*>(stored.data.data()), stored.data.size())};
  }
  return tensors;
}

TEST(SelfCheck, AWorkingModelPassesAndNoSlotIsTouched) {
  const testing::Fabricated model(small_geometry());
  TestRank rank(*model.checkpoint);
  const auto before = rank.state_bytes(0);
  const auto done = self_check(rank.backend(), rank.forward(), SlotId{rank.forward().limits().slots}, PageId{rank.forward().limits().pages});
  EXPECT_TRUE(done) << done.error().message;
  for (int slot = 0; slot < TestRank::kSlots; ++slot) EXPECT_EQ(rank.state_bytes(slot), before);
}

TEST(SelfCheck, UniformLogitsAreRefused) {  // B176
  RawTensors tensors = fabricated_tensors();
  std::string& head = tensors.at("model.language_model.embed_tokens.weight").bytes;
  std::fill(head.begin(), head.end(), '\0');
  const auto refused = check(tensors);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("equally likely"), std::string::npos) << refused.error().message;
}

TEST(SelfCheck, LogitsThatAreNotFiniteAreRefused) {
  RawTensors tensors = fabricated_tensors();
  std::string& weights = tensors.at("model.language_model.layers.1.mlp.down_proj.weight").bytes;
  weights[10] = '\xc0';
  weights[11] = '\x7f';  // a NaN
  const auto refused = check(tensors);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not finite"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace tandem::model
