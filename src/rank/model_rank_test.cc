#include "rank/model_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world_of_one.h"
#include "model/testing.h"

namespace tandem::rank {
namespace {

using ::testing::HasSubstr;

// A world of one whose communicator finds, when asked, what went wrong on the device.
struct Trouble {
  std::optional<Error> found;
};
class TroubledGroup final : public comm::Group {
 public:
  explicit TroubledGroup(std::shared_ptr<Trouble> trouble) : trouble_(std::move(trouble)), inner_(comm::make_world_of_one()) {}
  int world() const override { return 1; }
  Result<std::unique_ptr<comm::Communicator>> join(RankId rank, comm::Progress* progress, void* stream) override {
    TANDEM_ASSIGN(std::unique_ptr<comm::Communicator> inner, inner_->join(rank, progress, stream));
    return std::make_unique<Troubled>(std::move(inner), trouble_);
  }
  void abort(const Error& reason) noexcept override { inner_->abort(reason); }

 private:
  class Troubled final : public comm::Communicator {
   public:
    Troubled(std::unique_ptr<comm::Communicator> inner, std::shared_ptr<Trouble> trouble)
        : inner_(std::move(inner)), trouble_(std::move(trouble)) {}
    RankId rank() const override { return inner_->rank(); }
    int world() const override { return inner_->world(); }
    Result<void> all_reduce(bf16* data, std::int64_t elements) override { return inner_->all_reduce(data, elements); }
    Result<void> broadcast(std::int32_t* data, std::int64_t elements) override { return inner_->broadcast(data, elements); }
    Result<void> barrier() override { return inner_->barrier(); }
    Result<void> check() override {
      if (trouble_->found) return fail(*trouble_->found);
      return inner_->check();
    }
    comm::SequenceMark sequence() const override { return inner_->sequence(); }

   private:
    std::unique_ptr<comm::Communicator> inner_;
    std::shared_ptr<Trouble> trouble_;
  };

  std::shared_ptr<Trouble> trouble_;
  std::shared_ptr<comm::Group> inner_;
};

class ModelRankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const model::Geometry geometry = model::testing::small_geometry();
    ASSERT_TRUE(model::fabricate({.geometry = geometry, .folder = folder_.path()}).has_value());
    auto settings = std::make_shared<RankSettings>();
    settings->checkpoint = std::make_shared<const model::Checkpoint>(model::Checkpoint::open(folder_.path(), geometry).value());
    settings->geometry = geometry;
    settings->limits = {.max_tokens = 64, .max_rows = 4, .max_context = 256, .max_logit_rows = 4, .slots = 2, .pages = 4, .vocab = geometry.vocab};
    settings->warm_up_tokens = 64;
    settings->devices.ops = OpsKind::Reference;
    settings->group = std::make_shared<TroubledGroup>(trouble_);
    rank_ = std::make_unique<ModelRank>(settings, RankId{0}, status_);
    ASSERT_TRUE(rank_->open().has_value());
    ASSERT_TRUE(rank_->load().has_value());
    ASSERT_TRUE(rank_->warm_up().has_value());
    ASSERT_TRUE(rank_->measure().has_value());
    ASSERT_TRUE(rank_->allocate({.slots = 2, .pages = 4}).has_value());
  }

  Result<StepResult> run_step(std::uint64_t request, int slot) {
    step_ = {.rows = {Row{.request = RequestId{request}, .slot = SlotId{slot}, .kind = ops::RowKind::Prefill, .tokens = 3, .ids = {1, 2, 3},
                          .new_pages = {PageId{slot}}, .sampling = ops::SamplingParams{}, .samples = true}}};
    TANDEM_ASSIGN(const std::uint64_t ticket, rank_->begin(step_));
    return rank_->finish(ticket);
  }

  model::testing::TempFolder folder_;
  std::shared_ptr<Trouble> trouble_ = std::make_shared<Trouble>();
  Status status_;
  Step step_;
  std::unique_ptr<ModelRank> rank_;
};

// proves R2.3, R7.7: no result is given of a step whose collectives failed on the device
TEST_F(ModelRankTest, AStepWhoseCollectivesFailedOnTheDeviceFails) {
  ASSERT_TRUE(run_step(1, 0).has_value());
  trouble_->found = Error{ErrorKind::Protocol, "[comm] collective number 7: rank 0 calls all_reduce"};
  const auto step = run_step(2, 1);
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().kind, ErrorKind::Protocol);
  EXPECT_THAT(step.error().message, HasSubstr("collective number 7"));
}

TEST_F(ModelRankTest, APingFindsWhatWentWrongOnTheDevice) {
  EXPECT_TRUE(rank_->ping().has_value());
  trouble_->found = Error{ErrorKind::Device, "[comm] NCCL: unhandled system error"};
  ASSERT_FALSE(rank_->ping().has_value());
  EXPECT_EQ(rank_->ping().error().kind, ErrorKind::Device);
}

}  // namespace
}  // namespace tandem::rank
