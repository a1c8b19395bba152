#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/make_engine.h"
#include "engine/test_sink.h"
#include "scheduler/fake_executor.h"
#include "text/tokenizer_fixture.h"

// A whole engine whose executor is scripted, for tests of what a request meets.
namespace tandem::engine {

using scheduler::FakeExecutor;

inline const text::Tokenizer& tokenizer() {
  static const text::Tokenizer kTokenizer =
      text::Tokenizer::parse(text::fixture::tokenizer_json(), text::fixture::tokenizer_config_json()).value();
  return kTokenizer;
}

// An engine whose model writes what `says` returns for a request, and then <|im_end|>.
struct World {
  explicit World(std::string says = "", EngineOptions engine_options = {},
                 FakeExecutor::Options options = {}) {
    options.capacity.vocab = tokenizer().vocab_size();
    if (!says.empty()) {
      ids = tokenizer().encode(says, text::SpecialTokens::Parse);
      ids.push_back(*tokenizer().eos());
      options.choose = [this](RequestId, std::int32_t index, TokenId) {
        return ids[std::min(static_cast<std::size_t>(index), ids.size() - 1)];
      };
    }
    auto owned = std::make_unique<FakeExecutor>(options);
    fake = owned.get();
    const TokenId end = *tokenizer().eos();
    engine = make_engine(engine_options, std::move(owned), tokenizer(), std::span(&end, 1)).value();
  }
  RecordingSink::Record run(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    auto id = engine->submit(std::move(request), sink);
    if (!id) return {.failure = id.error()};
    return sink->wait();
  }

  std::vector<TokenId> ids;
  FakeExecutor* fake = nullptr;
  std::unique_ptr<Engine> engine;
};

inline Request greeting() { return {.prompt = tokenizer().encode("say hello", text::SpecialTokens::Parse)}; }

}  // namespace tandem::engine
