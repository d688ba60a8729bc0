// Pickles of Python 2 and 3: what they hold, and all that is refused: other names, calls, opcodes and damage.
#include "bantam/data/files/pickle.h"

#include "tests/data/formats/array_files.h"
#include "tests/data/formats/pickle_files.h"

namespace bantam::pickle_test {
namespace {

using Kind = PickledValue::Kind;
using testing::message_of;

/// {b'data': uint8 (2, 3), 250 to 255, b'labels': [3, 300], b'filenames': [b'a.png', b'b.png'], 'x': (None, True)}, as
/// Python 3.11 with NumPy 2 pickles it.
const char* const kPython3[] = {
    // protocol 2
    "80027d710028635f636f646563730a656e636f64650a7101580400000064617461710258060000006c6174696e31710386710452710563"
    "6e756d70792e5f636f72652e6d756c746961727261790a5f7265636f6e7374727563740a7106636e756d70790a6e6461727261790a7107"
    "4b0085710868015801000000627109680386710a52710b87710c52710d284b014b024b0386710e636e756d70790a64747970650a710f58"
    "02000000753171108988877111527112284b0358010000007c71134e4e4e4affffffff4affffffff4b0074711462896801580c000000c3"
    "bac3bbc3bcc3bdc3bec3bf7115680386711652711774711862680158060000006c6162656c737119680386711a52711b5d711c284b034d"
    "2c01656801580900000066696c656e616d6573711d680386711e52711f5d71202868015805000000612e706e6771216803867122527123"
    "68015805000000622e706e67712468038671255271266558010000007871274e88867128752e",
    // protocol 3
    "80037d7100284304646174617101636e756d70792e5f636f72652e6d756c746961727261790a5f7265636f6e7374727563740a7102636e"
    "756d70790a6e6461727261790a71034b008571044301627105877106527107284b014b024b03867108636e756d70790a64747970650a71"
    "0958020000007531710a898887710b52710c284b0358010000007c710d4e4e4e4affffffff4affffffff4b0074710e62894306fafbfcfd"
    "feff710f7471106243066c6162656c7371115d7112284b034d2c0165430966696c656e616d657371135d7114284305612e706e67711543"
    "05622e706e6771166558010000007871174e88867118752e",
    // protocol 4
    "800495d6000000000000007d9428430464617461948c166e756d70792e5f636f72652e6d756c74696172726179948c0c5f7265636f6e73"
    "74727563749493948c056e756d7079948c076e6461727261799493944b0085944301629487945294284b014b024b03869468058c056474"
    "7970659493948c02753194898887945294284b038c017c944e4e4e4affffffff4affffffff4b00749462894306fafbfcfdfeff94749462"
    "43066c6162656c73945d94284b034d2c0165430966696c656e616d6573945d94284305612e706e67944305622e706e6794658c0178944e"
    "888694752e",
};

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string error_of(const std::string& bytes) {
  return message_of<DataError>([&] { (void)Pickle("batch", bytes_of(bytes)); });
}

std::vector<std::int64_t> extents_of(const PickledValue& array) {
  std::vector<std::int64_t> extents;
  for (const PickledValue* extent : array.items) extents.push_back(extent->integer);
  return extents;
}

TEST(Pickle, ReadsWhatPython3Writes) {
  for (const char* digits : kPython3) {
    const Pickle pickle("batch", bytes_of(from_hex(digits)));
    const PickledValue& data = pickle.at("data", Kind::array);
    EXPECT_EQ(extents_of(data), (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(std::vector<std::uint8_t>(data.bytes().begin(), data.bytes().end()),
              (std::vector<std::uint8_t>{250, 251, 252, 253, 254, 255}));
    const PickledValue& labels = pickle.at("labels", Kind::list);
    ASSERT_EQ(labels.items.size(), 2u);
    EXPECT_EQ(labels.items[1]->integer, 300);
    EXPECT_EQ(pickle.at("x", Kind::tuple).items[0]->kind, Kind::none);
  }
}

TEST(Pickle, ReadsWhatPython2Writes) {
  const Pickle pickle("batch", bytes_of(testing::python2_batch({{"labels", {7, 0, 200}}}, 3, std::string(9, '\xfe'))));
  const PickledValue& data = pickle.at("data", Kind::array);
  EXPECT_EQ(extents_of(data), (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(data.bytes()[8], 0xfe);
  EXPECT_EQ(pickle.at("labels", Kind::list).items[2]->integer, 200);
}

/// Opcodes of a byte or two make values of some fifty: their number is bounded, however long the pickle is.
TEST(Pickle, TinyValuesAreBounded) {
  constexpr std::size_t kBytes = std::size_t{12} << 20;
  const auto repeated = [&](const std::string& begin, const std::string& piece) {
    std::string text = begin;
    while (text.size() < kBytes) text += piece;
    return text + ".";
  };
  const std::string two = "\x80\x02", four = "\x80\x04";
  using namespace std::string_literals;
  struct Case {
    std::string begin, piece, what;
  };
  const std::vector<Case> cases = {{two + "(", "K\1"s, "more than 1,048,576 values at once"},
                                   {two + "(", "N", "more than 1,048,576 values at once"},
                                   {two + "N", "2", "more than 1,048,576 values at once"},
                                   {two, "(", "more than 1,048,576 marks"},
                                   {two + "N", "]0", "more than 2,500,000 values"},
                                   {two + ")", "\x85", "more than 2,500,000 values"},
                                   {four + "N", "\x94", "more than 2,500,000 values"},
                                   {two + "]", "Na", "lists of more than 4,000,000 items in all"},
                                   {two + "N", "(NNNNNNNNt0", "lists of more than 4,000,000 items in all"}};
  for (const auto& [begin, piece, what] : cases) EXPECT_CONTAINS(error_of(repeated(begin, piece)), what);
  EXPECT_LE(sizeof(PickledValue), 56u);
  // Values that nothing changes are one object.
  const Pickle pickle("batch", bytes_of(two + "(NNK\7K\7))\x88\x88\x89\x89t."));
  const std::vector<PickledValue*>& items = pickle.root().items;
  ASSERT_EQ(items.size(), 10u);
  for (std::size_t i = 0; i < items.size(); i += 2) EXPECT_EQ(items[i], items[i + 1]) << i;
}

TEST(Pickle, MissingKeysAndOtherKindsAreNamed) {
  const Pickle pickle("batch", bytes_of(from_hex(kPython3[0])));
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)pickle.at("fine_labels", Kind::list); }),
                  "batch: has no key 'fine_labels'");
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)pickle.at("labels", Kind::array); }),
                  "batch: its key 'labels' holds a list, expected an array");
  const Pickle number("batch", bytes_of("\x80\2K\7."));
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)number.at("labels", Kind::list); }),
                  "holds a whole number, expected a dictionary");
}

TEST(Pickle, NothingIsExecuted) {
  using namespace std::string_literals;
  EXPECT_CONTAINS(
      error_of("\x80\2cos\nsystem\nU\4true\x85R."),
      "batch: is no pickle that is read here: the name 'os.system', which is refused (nothing is executed), "
      "at byte 2");
  EXPECT_CONTAINS(error_of("\x80\4\x8c\2os\x8c\6system\x93."), "the name 'os.system'");
  EXPECT_CONTAINS(error_of("\x80\2cnumpy\nndarray\n)R."), "a call that is refused");
  EXPECT_CONTAINS(error_of("\x80\2c_codecs\nencode\nU\1aU\5utf-8\x86R."), "a call that is refused");
  EXPECT_CONTAINS(error_of("\x80\2]N\x85"
                           "b."),
                  "a state that is refused");
  EXPECT_CONTAINS(error_of("\x80\2Pa\n."), "opcode 0x50, which is refused, at byte 2");
  EXPECT_CONTAINS(error_of("\x80\2(iposix\nsystem\n."), "opcode 0x69, which is refused");
  EXPECT_CONTAINS(error_of("\x80\2cnumpy\nndarray\n)\x81."), "a call that is refused");
  EXPECT_CONTAINS(error_of("\x80\2cnumpy\nndarray\n)}\x92."), "a call that is refused");
  EXPECT_CONTAINS(error_of("(dp1\n."), "does not begin with a protocol");
  EXPECT_CONTAINS(error_of("\x80\6N."), "protocol 6");
}

TEST(Pickle, DamageIsTold) {
  using namespace std::string_literals;
  EXPECT_CONTAINS(error_of("\x80\2U\5abc"), "it is cut short");
  EXPECT_CONTAINS(error_of("\x80\2."), "a value is missing");
  EXPECT_CONTAINS(error_of("\x80\2NN."), "values are left over");
  EXPECT_CONTAINS(error_of("\x80\2e."), "a mark is missing");
  EXPECT_CONTAINS(error_of("\x80\2(a."), "a value is missing");
  EXPECT_CONTAINS(error_of("\x80\2h\3."), "a value that it refers to is missing");
  EXPECT_CONTAINS(error_of("\x80\2}(NNNu."), "a key without a value");
  EXPECT_CONTAINS(error_of("\x80\2}Na."), "a dictionary in place of a list");
  EXPECT_CONTAINS(error_of("\x80\2cnumpy"s), "a name does not end");
  EXPECT_CONTAINS(error_of(testing::python2_batch({}, 3, std::string(10, 'x'))), "an array of 10 bytes");
}

TEST(Pickle, ManyReferencesToATextCostNoMemory) {
  std::string bytes = "\x80\2c_codecs\nencode\nq\1U\100" + std::string(64, 'a') + "q\2U\6latin1q\3";
  for (int i = 0; i < 200; ++i) bytes += "h\1h\2h\3\x86R";
  EXPECT_CONTAINS(error_of(bytes + "."), "texts of more bytes than the file has");
}

// A list of lists of lists, as deep as the file is long: nothing may recurse over it.
TEST(Pickle, DepthCostsNoStack) {
  std::string deep = "\x80\2" + std::string(1 << 20, ']') + std::string((1 << 20) - 1, 'a') + ".";
  EXPECT_EQ(Pickle("batch", bytes_of(deep)).root().kind, Kind::list);
}

TEST(Pickle, MutatedFilesAreReadOrRefused) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string whole = seed % 2 == 0
                                  ? testing::python2_batch({{"labels", {7, 0, 200}}}, 3, std::string(9, '\xfe'))
                                  : from_hex(kPython3[seed % 3]);
    try {
      (void)Pickle("batch", bytes_of(testing::mutated(whole, seed)));
    } catch (const DataError& error) {
      ++refused;
      EXPECT_CONTAINS(std::string(error.what()), "batch: ");
    }
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace bantam::pickle_test
