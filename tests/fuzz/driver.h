#pragma once

#include <string>
#include <vector>

// A fuzz target is a file x_fuzz.cc beside what it fuzzes. It defines libFuzzer's entry,
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
//
// which aborts when a promise is broken, and well-formed inputs to begin with, short enough to be read.
// driver.cc runs both without libFuzzer: mutations of the seeds, the same ones every time.
std::vector<std::string> fuzz_seeds();
