#include "text/unicode_nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

std::string utf8(std::u32string_view code_points) {
  std::string text;
  for (const char32_t c : code_points) append_utf8(c, text);
  return text;
}

std::string by_utf8proc(const std::string& text) {
  utf8proc_uint8_t* out = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const std::string result(reinterpret_cast<const char*>(out));
  std::free(out);
  return result;
}

TEST(Nfc, MarksMergeAreOrderedAndBlockEachOther) {
  EXPECT_EQ(to_nfc(utf8(U"e\u0301")), utf8(U"\u00e9"));
  EXPECT_EQ(to_nfc(utf8(U"a\u0323\u0302")), utf8(U"\u1ead"));
  EXPECT_EQ(to_nfc(utf8(U"a\u0302\u0323")), utf8(U"\u1ead"));         // reordered before merging
  EXPECT_EQ(to_nfc(utf8(U"a\u0345\u0327")), utf8(U"a\u0327\u0345"));
  EXPECT_EQ(to_nfc(utf8(U"\u212b\u2126")), utf8(U"\u00c5\u03a9"));    // singletons
  EXPECT_EQ(to_nfc(utf8(U"\u0958")), utf8(U"\u0915\u093c"));          // excluded from composition
  EXPECT_EQ(to_nfc(utf8(U"\u1112\u1161\u11ab")), utf8(U"\ud55c"));
  EXPECT_EQ(to_nfc(utf8(U"\uac00\u11a7")), utf8(U"\uac00\u11a7"));    // U+11A7 is not a tail
}

TEST(Nfc, MarksYoungerThanUnicode9StandWhereTheyAre) {
  EXPECT_EQ(to_nfc(utf8(U"a\U0001e08f\u0323")), utf8(U"a\U0001e08f\u0323"));
  EXPECT_EQ(to_nfc(utf8(U"\U00011935\U00011930")), utf8(U"\U00011935\U00011930"));
}

TEST(Nfc, EqualsUtf8procOnRandomTextOfOlderCharacters) {
  constexpr char32_t kSome[] = {'a', 'E', 'o', ' ', 0xC5, 0xE9, 0x1EAD, 0x300, 0x301, 0x302, 0x308, 0x323, 0x327, 0x328, 0x334, 0x338, 0x345,
                                0x5D0, 0x5B0, 0x5BC, 0x64B, 0x651, 0x915, 0x93C, 0x94D, 0x958, 0x9C7, 0x9BE, 0xBC6, 0xBBE, 0xDD9, 0xDCF, 0xDCA,
                                0xE38, 0xF71, 0xF72, 0xF73, 0x1100, 0x1112, 0x1161, 0x1175, 0x11A8, 0x11C2, 0xAC00, 0xD55C, 0x304B, 0x3099,
                                0x309A, 0x30CF, 0x212B, 0x2126, 0x1F71, 0xFB1D, 0xFB2C, 0x2ADC, 0x1D15E, 0x1D165, 0x1D16E, 0x110A5, 0x110BA,
                                0x4E00, 0xF900, 0x1F600, 0x2F800};
  for (unsigned seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (unsigned n = 1 + random() % 12; n > 0; --n) append_utf8(kSome[random() % std::size(kSome)], text);
    const std::string normal = to_nfc(text);
    ASSERT_EQ(normal, by_utf8proc(text)) << "seed " << seed;
    ASSERT_TRUE(!is_nfc(text) || normal == text) << "seed " << seed;
    ASSERT_EQ(to_nfc(normal), normal) << "seed " << seed;
  }
}

TEST(Nfc, LongRunsOfMarksAreOrderedInTime) {
  constexpr int kPairs = 100000;
  std::string text = "a", expected = utf8(U"\u1ea1");
  for (int i = 0; i < kPairs; ++i) text += utf8(U"\u0301\u0323");
  for (int i = 1; i < kPairs; ++i) expected += utf8(U"\u0323");
  for (int i = 0; i < kPairs; ++i) expected += utf8(U"\u0301");
  EXPECT_TRUE(to_nfc(text) == expected);
}

TEST(UnicodeTable, KnowsTheClassesUpToUnicode16) {
  const UnicodeTable& table = unicode_table();
  EXPECT_EQ(table.char_class('a'), CharClass::Letter);
  EXPECT_EQ(table.char_class('\r'), CharClass::Newline);
  EXPECT_EQ(table.char_class('\t'), CharClass::Space);
  EXPECT_EQ(table.char_class(0x3000), CharClass::Space);
  EXPECT_EQ(table.char_class(0x200B), CharClass::Other);
  EXPECT_EQ(table.char_class(0x0301), CharClass::Mark);
  EXPECT_EQ(table.char_class(0x0661), CharClass::Number);
  EXPECT_EQ(table.char_class(0x2EBF0), CharClass::Letter);  // 15.1
  EXPECT_EQ(table.char_class(0x0897), CharClass::Mark);     // 16
  EXPECT_EQ(table.char_class(0x1CCF0), CharClass::Number);  // 16
  EXPECT_EQ(table.char_class(0x10FFFF), CharClass::Other);
}

}  // namespace
}  // namespace tandem::text
