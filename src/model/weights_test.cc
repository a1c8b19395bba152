#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::index_filled;
using testing::TempFolder;
using testing::write_safetensors;

// The numbers of heads per published size, on narrow layers: what a partition cuts is the same.
Geometry narrow(int query, int kv, int key, int value, bool tied) {
  return {.name = "narrow", .hidden = 16, .intermediate = 48, .query_heads = query, .kv_heads = kv, .key_heads = key,
          .value_heads = value, .vocab = 64, .max_context = 64, .tied = tied,
          .layers = {LayerKind::Linear, LayerKind::Full}};
}

struct Filled {
  TempFolder folder;
  Geometry geometry;
  std::unique_ptr<Checkpoint> checkpoint;
  explicit Filled(const Geometry& g) : geometry(g) {
    write_safetensors(folder.path() / "model.safetensors", index_filled(g));
    checkpoint = std::make_unique<Checkpoint>(*Checkpoint::open(folder.path(), g));
  }
  // The stored bytes of a bf16 tensor from an element on, to the end of the tensor at least.
  [[nodiscard]] const std::byte* bytes(Role role, int layer, std::int64_t row, std::int64_t col) const {
    const TensorSpec spec = tensor_spec(geometry, role, layer);
    return checkpoint->tensor(role, layer).data.data() + (row * spec.cols() + col) * 2;
  }
  [[nodiscard]] bf16 at(Role role, int layer, std::int64_t row, std::int64_t col) const {
    bf16 value;
    std::memcpy(&value, bytes(role, layer, row, col), 2);
    return value;
  }
  [[nodiscard]] float number(Role role, int layer, std::int64_t row) const {
    float value;
    std::memcpy(&value, checkpoint->tensor(role, layer).data.data() + row * 4, 4);
    return value;
  }
};

// A packed matrix's rows, each of them said to be one row of one tensor, at columns from `col` on.
struct Source {
  Role role;
  std::int64_t row;
};

void expect_rows(ops::Backend& backend, const Filled& filled, int layer, const ops::LinearWeight& packed,
                 const std::vector<Source>& sources, std::int64_t col, const std::string& what) {
  const auto back = backend.read_back(packed);
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(packed.rows, static_cast<std::int64_t>(sources.size())) << what;
  ASSERT_EQ(back->size(), static_cast<std::size_t>(packed.rows * packed.cols)) << what;
  for (std::size_t r = 0; r < sources.size(); ++r) {
    const auto cols = static_cast<std::size_t>(packed.cols);
    ASSERT_EQ(std::memcmp(back->data() + r * cols, filled.bytes(sources[r].role, layer, sources[r].row, col), cols * sizeof(bf16)), 0)
        << what << " row " << r;
  }
}

void add(std::vector<Source>& sources, Role role, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sources.push_back({role, first + i});
}

// The expectations are written from spec 4's table, not from Partition.
void expect_rank(const Filled& filled, int rank, int world, bool sharded) {
  const Geometry& g = filled.geometry;
  const auto backend = ops::make_reference_backend();
  const auto mode = sharded ? LinearAttention::Sharded : LinearAttention::Replicated;
  const auto weights = Weights::load(*backend, *filled.checkpoint, *Partition::make(g, RankId{rank}, world, mode));
  ASSERT_TRUE(weights) << weights.error().message;
  const std::string what = "rank " + std::to_string(rank) + " of " + std::to_string(world) + (sharded ? " sharded" : "");

  const auto& full = std::get<FullMixer>(weights->layers[1].mixer);
  const std::int64_t nh = g.query_heads / world;
  const std::int64_t nkv = std::max(1, g.kv_heads / world);
  const std::int64_t kv = g.kv_heads >= world ? rank * nkv : rank / (world / g.kv_heads);
  std::vector<Source> rows;
  add(rows, Role::Query, rank * nh * 512, nh * 512);
  add(rows, Role::Key, kv * 256, nkv * 256);
  add(rows, Role::Value, kv * 256, nkv * 256);
  expect_rows(*backend, filled, 1, full.qkv, rows, 0, what + " qkv");
  rows.clear();
  add(rows, Role::AttentionOut, 0, g.hidden);
  EXPECT_EQ(full.out.cols, nh * 256);
  expect_rows(*backend, filled, 1, full.out, rows, rank * nh * 256, what + " o_proj");

  const auto& linear = std::get<LinearMixer>(weights->layers[0].mixer);
  const std::int64_t parts = sharded ? world : 1, part = sharded ? rank : 0;
  const std::int64_t hk = g.key_heads / parts, hv = g.value_heads / parts;
  const std::int64_t K = g.key_heads * 128;
  std::vector<Source> channels;
  add(channels, Role::InQkv, part * hk * 128, hk * 128);
  add(channels, Role::InQkv, K + part * hk * 128, hk * 128);
  add(channels, Role::InQkv, 2 * K + part * hv * 128, hv * 128);
  rows = channels;
  add(rows, Role::InZ, part * hv * 128, hv * 128);
  add(rows, Role::InB, part * hv, hv);
  add(rows, Role::InA, part * hv, hv);
  expect_rows(*backend, filled, 0, linear.in, rows, 0, what + " in_proj");
  rows.clear();
  add(rows, Role::DeltaOut, 0, g.hidden);
  EXPECT_EQ(linear.out.cols, hv * 128);
  expect_rows(*backend, filled, 0, linear.out, rows, part * hv * 128, what + " out_proj");
  for (std::size_t c = 0; c < channels.size(); ++c) {
    for (std::int64_t tap = 0; tap < 4; ++tap) {
      ASSERT_EQ(linear.params.conv_weight[c * 4 + static_cast<std::size_t>(tap)], to_float(filled.at(Role::Conv, 0, channels[c].row, tap)));
    }
  }
  for (std::int64_t h = 0; h < hv; ++h) {
    ASSERT_EQ(linear.params.a_log[h], filled.number(Role::ALog, 0, part * hv + h));
    ASSERT_EQ(linear.params.dt_bias[h], to_float(filled.at(Role::DtBias, 0, part * hv + h, 0)));
  }
  for (std::int64_t i = 0; i < 128; ++i) ASSERT_EQ(linear.params.norm_weight[i], filled.number(Role::GatedNorm, 0, i));

  const std::int64_t inner = g.intermediate / world;
  for (int layer = 0; layer < 2; ++layer) {
    rows.clear();
    add(rows, Role::Gate, rank * inner, inner);
    add(rows, Role::Up, rank * inner, inner);
    expect_rows(*backend, filled, layer, weights->layers[static_cast<std::size_t>(layer)].gate_up, rows, 0, what + " gate_up");
    rows.clear();
    add(rows, Role::Down, 0, g.hidden);
    expect_rows(*backend, filled, layer, weights->layers[static_cast<std::size_t>(layer)].down, rows, rank * inner, what + " down");
  }
  EXPECT_EQ(weights->embedding.vocab, g.vocab);
  EXPECT_EQ(weights->head.packed != nullptr, rank == 0) << "rank 0 alone runs the head (R1.7)";
  if (rank == 0) {
    rows.clear();
    add(rows, g.tied ? Role::Embedding : Role::Head, 0, g.vocab);
    expect_rows(*backend, filled, -1, weights->head, rows, 0, what + " head");
  }
}

TEST(Weights, PackedShardsPutTogetherAreTheCheckpoint) {  // proves R7.6
  // Heads of 0.8B and 2B, of 4B and 9B, and of 27B.
  for (const Geometry& g : {narrow(8, 2, 16, 16, true), narrow(16, 4, 16, 32, false), narrow(24, 4, 16, 48, false)}) {
    const Filled filled(g);
    for (const int world : {1, 2, 4, 8}) {
      for (const bool sharded : {false, true}) {
        for (int rank = 0; rank < world; ++rank) expect_rank(filled, rank, world, sharded);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// B026: q_proj stores each head's 256 query rows and then its 256 gate rows. Row r is filled with r.
TEST(Weights, AHeadsQueryRowsAndGateRowsComeToItsRankInTheirOrder) {
  const Geometry g = narrow(16, 4, 16, 32, true);
  auto tensors = index_filled(g);
  const TensorSpec query = tensor_spec(g, Role::Query, 1);
  ASSERT_EQ(query.rows(), 16 * 512);
  for (std::int64_t r = 0; r < query.rows(); ++r) {
    for (std::int64_t c = 0; c < query.cols(); ++c) {
      const bf16 value = to_bf16(static_cast<float>(c == 0 ? r / 256 : r % 256));  // both are exact in bf16
      std::memcpy(tensors.at(query.name).bytes.data() + (r * query.cols() + c) * 2, &value, 2);
    }
  }
  const TempFolder folder;
  write_safetensors(folder.path() / "model.safetensors", tensors);
  const auto checkpoint = Checkpoint::open(folder.path(), g);
  ASSERT_TRUE(checkpoint);
  const auto backend = ops::make_reference_backend();
  for (const int world : {1, 2, 4}) {
    for (int rank = 0; rank < world; ++rank) {
      const auto weights = Weights::load(
          *backend, *checkpoint, *Partition::make(g, RankId{rank}, world, LinearAttention::Replicated));
      ASSERT_TRUE(weights) << weights.error().message;
      const ops::LinearWeight& packed = std::get<FullMixer>(weights->layers[1].mixer).qkv;
      const auto back = backend->read_back(packed);
      ASSERT_TRUE(back) << back.error().message;
      const int heads = 16 / world;
      for (int head = 0; head < heads; ++head) {
        for (int half = 0; half < 2; ++half) {  // the queries, the gate
          for (int i = 0; i < 256; ++i) {
            const auto at = static_cast<std::size_t>((head * 512 + half * 256 + i) * packed.cols);
            ASSERT_EQ(to_float((*back)[at]), static_cast<float>((rank * heads + head) * 2 + half))
                << world << " " << rank << " " << head << " " << i;
            ASSERT_EQ(to_float((*back)[at + 1]), static_cast<float>(i))
                << world << " " << rank << " " << head << " " << i;
          }
        }
      }
    }
  }
}

TEST(Weights, StoredVectorsAreRoundedToBf16UnlessAskedForAsTheyAre) {  // spec 3.0
  const Geometry g = testing::small_geometry();
  const testing::Fabricated model(g);
  const Partition one = *Partition::make(g, RankId{0}, 1, LinearAttention::Replicated);
  float stored;
  std::memcpy(&stored, model.checkpoint->tensor(Role::ALog, 0).data.data(), 4);
  ASSERT_NE(stored, round_bf16(stored));
  const auto backend = ops::make_reference_backend();
  const auto a_log = [&](VectorRounding rounding) {
    return std::get<LinearMixer>(Weights::load(*backend, *model.checkpoint, one, rounding)->layers[0].mixer).params.a_log[0];
  };
  EXPECT_EQ(a_log(VectorRounding::Bf16), round_bf16(stored));
  EXPECT_EQ(a_log(VectorRounding::Stored), stored);
}

TEST(Weights, ProgressCountsThisRanksBytesOnce) {
  const Geometry g = testing::small_geometry();
  const testing::Fabricated model(g);
  for (const int world : {1, 2}) {
    for (int rank = 0; rank < world; ++rank) {
      const Partition partition = *Partition::make(g, RankId{rank}, world, LinearAttention::Sharded);
      const auto backend = ops::make_reference_backend();
      std::vector<std::int64_t> seen;
      std::int64_t total = 0;
      ASSERT_TRUE(Weights::load(*backend, *model.checkpoint, partition, VectorRounding::Bf16, [&](std::int64_t done, std::int64_t all) {
        seen.push_back(done);
        total = all;
      }));
      EXPECT_EQ(seen.size(), 5u);
      EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      EXPECT_EQ(seen.back(), total);
      if (world == 1) {
        EXPECT_EQ(total, model.checkpoint->text_bytes());
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
