#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/ranges.h"
#include "model/testing.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigFile : public ::testing::Test {
 protected:
  // Parses `prog run ...` over a file with that text.
  void parse(const std::string& text, std::vector<std::string> arguments = {}) {
    path_ = folder_.path() / "flags.toml";
    std::ofstream(path_) << text;
    arguments.insert(arguments.begin(), {"run", "--config", path_.string()});
    std::reverse(arguments.begin(), arguments.end());
    CLI::App app;
    CLI::App* const command = app.add_subcommand("run", "");
    command->add_option("model", model_, "");
    command->add_option("--port", port_, "")->check(whole_number(0, 65535))->envname("TANDEM_TEST_PORT");
    command->add_option("--names", names_, "")->delimiter(',');
    command->add_option("--rate", rate_, "");
    command->add_flag("--quiet", quiet_, "");
    command->callback([this] { ran_ = true; });
    add_config_flag(*command);
    app.parse(std::move(arguments));
  }
  std::string refusal(const std::string& text) {
    try {
      parse(text);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "accepted";
  }

  model::testing::TempFolder folder_;
  std::filesystem::path path_;
  std::string model_;
  int port_ = 1;
  double rate_ = 0;
  std::vector<std::string> names_;
  bool quiet_ = false, ran_ = false;
};

TEST_F(ConfigFile, HoldsFlagsByTheirNames) {
  parse("model = '/srv/model'\nport = 8000\nnames = ['a', \"b\"]\nrate = 0.5\nquiet = true\n");
  EXPECT_EQ(model_, "/srv/model");
  EXPECT_EQ(port_, 8000);
  EXPECT_THAT(names_, ElementsAre("a", "b"));
  EXPECT_EQ(rate_, 0.5);
  EXPECT_TRUE(quiet_);
  EXPECT_TRUE(ran_);
  parse("names = 'c,d'\nquiet = false");
  EXPECT_THAT(names_, ElementsAre("c", "d"));
  EXPECT_FALSE(quiet_);
}

TEST_F(ConfigFile, TheCommandLineWinsThenTheEnvironment) {
  parse("port = 8000\nmodel = 'of the file'\nnames = ['a']", {"mine", "--names", "x,y"});
  EXPECT_EQ(model_, "mine");
  EXPECT_THAT(names_, ElementsAre("x", "y"));
  EXPECT_EQ(port_, 8000);
  setenv("TANDEM_TEST_PORT", "9000", 1);
  parse("port = 8000");
  EXPECT_EQ(port_, 9000);
  parse("port = 8000", {"--port", "9500"});
  EXPECT_EQ(port_, 9500);
  unsetenv("TANDEM_TEST_PORT");
}

TEST_F(ConfigFile, WhatCannotBeUsedIsRefusedWithFileAndLine) {
  const auto at = [&](int line, const std::string& words) {
    return ::testing::AllOf(HasSubstr("flags.toml:" + std::to_string(line) + ": "), HasSubstr(words));
  };
  EXPECT_THAT(refusal("port = 1\nprot = 8000"), at(2, "'prot' is no flag of run"));
  EXPECT_THAT(refusal("\nport = 'abc"), at(2, ""));
  EXPECT_THAT(refusal("port = 1\nport = 2"), at(2, "port"));
  EXPECT_THAT(refusal("port = 'abc'"), at(1, "--port: 'abc'; 0 to 65535 works"));
  EXPECT_THAT(refusal("port = 99999"), at(1, "'99999'; 0 to 65535 works"));
  EXPECT_THAT(refusal("port = true"), at(1, "a string or a number"));
  EXPECT_THAT(refusal("port = [1, 2]"), at(1, "one value"));
  EXPECT_THAT(refusal("quiet = 1"), at(1, "true or false"));
  EXPECT_THAT(refusal("names = [[1]]"), at(1, "array of strings"));
  EXPECT_THAT(refusal("config = 'other.toml'"), at(1, "'config' is no flag"));
  EXPECT_THAT(refusal("[run]\nport = 1"), HasSubstr("'run' is no flag"));
  EXPECT_FALSE(ran_);
  CLI::App app;
  EXPECT_THROW(apply_config(app, folder_.path() / "none.toml"), CLI::ParseError);
  EXPECT_THROW(apply_config(app, folder_.path()), CLI::ParseError);
}

TEST(Ranges, TakeNoNanNoInfinityAndNothingBehindTheNumber) {
  for (const char* bad : {"nan", "inf", "1e300", "-1", "0", "", "1s", " 1"}) {
    std::string text = bad;
    EXPECT_NE(deadline_seconds()(text), "") << bad;
  }
  for (const char* good : {"0.001", "1", "30.5", "1e3", "1000000"}) {
    std::string text = good;
    EXPECT_EQ(deadline_seconds()(text), "") << good;
  }
  std::string port = "65536";
  EXPECT_EQ(whole_number(0, 65535)(port), "'65536'; 0 to 65535 works");
}

}  // namespace
}  // namespace tandem::cli
