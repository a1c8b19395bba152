#include "cli/start_replica.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "cli/model_folder.h"
#include "cli/progress_bar.h"
#include "engine/make_engine.h"
#include "text/utf8.h"

namespace tandem::cli {
namespace {

std::vector<TokenId> end_ids(const model::Geometry& geometry, const text::Tokenizer& tokenizer) {
  std::set<TokenId> ids(geometry.eos_ids.begin(), geometry.eos_ids.end());
  if (tokenizer.eos()) ids.insert(*tokenizer.eos());
  return {ids.begin(), ids.end()};
}

}  // namespace

Result<PlannedReplica> plan_replica(Replica options) {
  TANDEM_ASSIGN(executor::StartPlan plan, executor::plan_start(options.executor));
  options.engine.mixed = plan.mixed;
  options.engine.steps_in_flight = options.executor.max_in_flight;
  TANDEM_TRY(engine::check_options(options.engine, {.slots = plan.limits.slots,
                                                    .pages = plan.limits.pages,
                                                    .max_context = plan.limits.max_context,
                                                    .max_step_tokens = plan.max_step_tokens,
                                                    .max_mixed_tokens = plan.max_mixed_tokens,
                                                    .vocab = plan.geometry.vocab}));
  return PlannedReplica{std::move(options), std::move(plan)};
}

Result<PlannedReplica> plan_replica(const ReplicaFlags& flags) {
  TANDEM_ASSIGN(Replica options, to_options(flags));
  return plan_replica(std::move(options));
}

Result<void> check_tokenizer(const PlannedReplica& replica, const text::Tokenizer& tokenizer) {
  const TokenId last = tokenizer.vocab_size() - 1;
  if (last < replica.plan.geometry.vocab) return {};
  return fail(ErrorKind::Invalid, fmt::format("[model] {}: the tokenizer has token {} ('{}'), the model's vocab_size is {}; they are of different models",
                                              replica.options.executor.model.string(), last, text::to_utf8(tokenizer.token_bytes(last)),
                                              replica.plan.geometry.vocab));
}

Result<std::unique_ptr<engine::Engine>> start_replica(PlannedReplica replica, const text::Tokenizer& tokenizer) {
  TANDEM_TRY(check_tokenizer(replica, tokenizer));
  executor::ExecutorOptions& options = replica.options.executor;
  options.tokens_with_text = tokenizer.vocab_size();
  ProgressBar bar("loading " + folder_name(options.model));
  auto started = executor::start_executor(options, [&bar](const executor::StartProgress& progress) {
    bar.show(progress.done_bytes, progress.total_bytes);
  });
  bar.finish();
  if (!started) return fail(std::move(started.error()));
  return engine::make_engine(replica.options.engine, std::move(*started), tokenizer, end_ids(replica.plan.geometry, tokenizer));
}

}  // namespace tandem::cli
