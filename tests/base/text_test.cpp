// Distances, nearest names, numbers for people, tables.
#include "bantam/base/text.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"

namespace bantam::text_test {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("learning_rat", "learning_rate"), 1u);
  EXPECT_EQ(edit_distance("epcohs", "epochs"), 1u);  // a swap is one edit
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);         // restricted: no part is edited twice
}

TEST(Nearest, FindsLikelySlipsOnly) {
  const std::vector<std::string> keys = {"batch", "epochs", "size", "epsilon"};
  EXPECT_EQ(nearest("epcohs", keys), "epochs");
  EXPECT_EQ(nearest("Epochs", keys), "epochs");
  EXPECT_EQ(nearest("sizes", keys), "size");
  EXPECT_EQ(nearest("eps", keys), std::nullopt);  // four letters short of epsilon
  EXPECT_EQ(nearest("zebra", keys), std::nullopt);
  EXPECT_EQ(nearest("x", std::vector<std::string>{"y"}), std::nullopt);  // nothing in common
  EXPECT_EQ(nearest("ab", std::vector<std::string>{"ac", "ad"}), "ac");  // the first of equals
  EXPECT_EQ(nearest("BatchNorm2d", std::vector<std::string>{"bias", "batch_norm"}), "batch_norm");
  EXPECT_EQ(nearest("LayerNormalization", std::vector<std::string>{"layer_norm", "group_norm"}), "layer_norm");
  EXPECT_EQ(nearest("GroupNormalization", std::vector<std::string>{"layer_norm", "group_norm"}), "group_norm");
  EXPECT_EQ(nearest("global_avg_pool", std::vector<std::string>{"global_max_pool", "global_average_pool"}),
            "global_average_pool");  // though the other is nearer
  for (const char* word : {"GlobalAvgPool", "GlobalAveragePooling2D", "global_avg_pool2d", "AdaptiveAvgPool2d", "GAP"})
    EXPECT_EQ(nearest(word, std::vector<std::string>{"global_max_pool", "average_pool", "global_average_pool"}),
              "global_average_pool")
        << word;
  EXPECT_EQ(nearest("MaxPool2d", std::vector<std::string>{"global_max_pool", "max_pool"}), "max_pool");
  EXPECT_EQ(nearest("kernel_size", std::vector<std::string>{"filters"}), std::nullopt);
  EXPECT_EQ(nearest("a", std::vector<std::string>{}), std::nullopt);
}

TEST(MatchesGlob, StarsAreAnyTextAndQuestionMarksOneCharacter) {
  for (const char* pattern : {"*", "*weight*", "block?/conv/weight", "*conv*", "b*/*/w*t", "block1/conv/weight", "**t"})
    EXPECT_TRUE(matches_glob("block1/conv/weight", pattern)) << pattern;
  for (const char* pattern : {"", "weight", "block?/weight", "*conv", "conv*", "block1/conv/weight?", "*weights"})
    EXPECT_FALSE(matches_glob("block1/conv/weight", pattern)) << pattern;
  EXPECT_TRUE(matches_glob("aaab", "*ab")) << "the first a that fits is not the last";
  EXPECT_TRUE(matches_glob("", "*"));
  EXPECT_TRUE(matches_glob("", ""));
  EXPECT_TRUE(matches_glob("banana", "*a*a"));
  EXPECT_TRUE(matches_glob("block1/norm2/scale", "*/norm?/*"));
  EXPECT_FALSE(matches_glob("stem/weight", "stem"));
  EXPECT_FALSE(matches_glob("", "?"));
}

TEST(Join, PutsTheLastSeparatorLast) {
  const std::vector<std::string> items = {"a", "b", "c"};
  EXPECT_EQ(join(items, ", ", " or "), "a, b or c");
  EXPECT_EQ(join(std::span(items).first(2), ", ", " or "), "a or b");
  EXPECT_EQ(join(std::span(items).first(1), ", ", " or "), "a");
  EXPECT_EQ(join(std::span(items).first(0), ", ", " or "), "");
}

TEST(Shown, EscapesControlCharacters) {
  EXPECT_EQ(shown("plain, größe 名"), "plain, größe 名");
  EXPECT_EQ(shown("\x1b[31m\n\t\r\x7f\x01"), "\\x1b[31m\\n\\t\\r\\x7f\\x01");
  EXPECT_EQ(shown("\xC2\x9B"
                  "31m"),
            "\\u009b31m");  // C1's control sequence introducer
  EXPECT_EQ(shown("\xC2"), "\\xc2") << "half a character";
  EXPECT_EQ(printable("a\n\tb\x1b"), "a\n\tb\\x1b");
}

TEST(Shown, EscapesWhatIsUnseenAndWhatIsNoText) {
  EXPECT_EQ(shown("a\u202Ed\u2066\u061C\u200E\u200F\u2069b"), "a\\u202ed\\u2066\\u061c\\u200e\\u200f\\u2069b");
  EXPECT_EQ(shown("a\u200Bb\uFEFF\u2028\u2029\u2060"), "a\\u200bb\\ufeff\\u2028\\u2029\\u2060");
  EXPECT_EQ(shown("\x9b"
                  "31m caf\xE9"),
            "\\x9b31m caf\\xe9");
  EXPECT_EQ(shown("\xC0\x9B \xE0\x80\x9B \xED\xA0\x80 \xF4\x90\x80\x80"),
            "\\xc0\\x9b \\xe0\\x80\\x9b \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80")
      << "longer spellings, surrogates and code points beyond the last";
  EXPECT_EQ(printable(std::string(1, '\0')), "\\x00");
  EXPECT_EQ(printable("\u00A0\u0301"), "\u00A0\u0301") << "spaces that are wide and accents are seen";
}

TEST(Shown, KeepsJoinersOfWordsAndEmoji) {
  for (const char* name :
       {"👩‍🔬", "❤️‍🔥", "می‌خواهم", "क्‍ष", "größe", "名前", "🏳️‍🌈 flag"})
    EXPECT_EQ(shown(name), name);
  EXPECT_EQ(shown("pay\u200Dpal"), "pay\\u200dpal") << "between letters of ASCII it is only unseen";
  EXPECT_EQ(shown("\u200D"), "\\u200d");
  EXPECT_EQ(shown("名\u200D"), "名\\u200d");
  EXPECT_EQ(shown("👩\u200D\u200D🔬"), "👩\\u200d\\u200d🔬");
}

TEST(Shown, IsNoLongerThanAsked) {
  const std::string controls(1000, '\x1b'), bytes(1000, '\x80'), wide(1000, '\n');
  for (const std::string& text : {controls, bytes, wide}) EXPECT_LE(display_width(shown(text, 20)), 20u);
}

TEST(PrintableJson, SaysTheSame) {
  EXPECT_EQ(printable_json("{\"a\": \"\x7f\u202E\u0085 ü\"}\n"), "{\"a\": \"\\u007f\\u202e\\u0085 ü\"}\n");
}

TEST(IsWellFormed, AcceptsUtf8Alone) {
  for (const char* text : {"", "plain", "größe 名 👩‍🔬", "\x1b"}) EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\x80", "\xC3", "a\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

TEST(Base64, IsThatOfTheRfc) {
  const std::pair<const char*, const char*> known[] = {{"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
                                                       {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64("\xFF\xFE"), "//4=");
}

TEST(Tables, ColumnsAreAsWideAsTheEscapes) {
  Table table({{"na\x1bme", Align::left}, {"n"}});
  table.add_row({"\x1b[31m\n", "1"});
  table.add_row({"\xFF", "2"});
  EXPECT_EQ(table.to_string(), "na\\x1bme    n\n----------  -\n\\x1b[31m\\n  1\n\\xff        2\n");
}

TEST(Shown, ShortensBetweenCharacters) {
  EXPECT_EQ(shown("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(shown("abcdefghijk", 10), "abcdef…ijk");
  EXPECT_EQ(shown("ääääääääää", 10), "ääääääääää") << "characters count, not bytes";
  const std::string cut = shown("äääääääääää", 10);
  EXPECT_EQ(cut, "äää…ä");
  EXPECT_LT(shown(std::string(1'000'000, 'x')).size(), 90u);
  EXPECT_EQ(shown_message("abcdefghijk\n\x1b\n", 10), "abcdef…ijk\n\\x1b\n");
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(695493), "695,493");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatDuration, ChoosesItsUnits) {
  EXPECT_EQ(format_duration(0), "0ms");
  EXPECT_EQ(format_duration(0.35), "350ms");
  EXPECT_EQ(format_duration(0.9999), "1.0s");
  EXPECT_EQ(format_duration(8.26), "8.3s");
  EXPECT_EQ(format_duration(9.97), "10s");
  EXPECT_EQ(format_duration(59.6), "1m 00s");
  EXPECT_EQ(format_duration(83), "1m 23s");
  EXPECT_EQ(format_duration(7500), "2h 05m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3d 04h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(DisplayWidth, CountsCharacters) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("≥ µ…"), 4u);
}

TEST(Table, AlignsColumns) {
  Table table({{"layer", Align::left}, {"parameters"}, {"note", Align::left}});
  table.add_row({"dense µ", "64,064", "x"});
  table.add_row({"flatten"});
  table.add_rule();
  table.add_row({"total", "695,493"});
  EXPECT_EQ(table.to_string(),
            "layer    parameters  note\n"
            "-------  ----------  ----\n"
            "dense µ      64,064  x\n"
            "flatten\n"
            "-------  ----------  ----\n"
            "total       695,493\n");
  EXPECT_THROW(table.add_row({"1", "2", "3", "4"}), Error);
}

}  // namespace
}  // namespace bantam::text_test
