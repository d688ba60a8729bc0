// PyTorch's files (made by tests/oracles/torch_files.py): every kind of view, repacked archives, what is refused,
// damage.
#include "bantam/run/weights/torch_file.h"

#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/data/files/zip.h"
#include "tests/cpu_seconds.h"
#include "tests/data/formats/array_files.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::torch_file_test {
namespace {

namespace fs = std::filesystem;

class TorchFileTest : public RunTest {
 protected:
  static fs::path fixture(const std::string& name) {
    return fs::path(BANTAM_SOURCE_DIR) / "tests/run/weights/files" / name;
  }
  template <class T>
  static std::vector<T> values(const TorchFile& file, const std::string& name) {
    const HostTensor& tensor = file.tensors.at(name);
    std::vector<T> all(tensor.bytes.size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), tensor.bytes.data(), tensor.bytes.size());
    return all;
  }
  /// Not synced: thousands are written.
  void write(const std::string& bytes) const { std::ofstream(path("net.pt"), std::ios::binary) << bytes; }
  std::string error_of(const std::string& bytes) const {
    write(bytes);
    return error_at(path("net.pt"));
  }
  static std::string error_at(const fs::path& path, const std::string& key = "") {
    try {
      (void)read_torch_file(path, key);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  /// The members of views.pt, decompressed.
  static testing::Members members() {
    const ZipFile zip(fixture("views.pt"));
    testing::Members all;
    for (const auto& [name, member] : zip.members()) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(member.size));
      zip.open(name)->read(0, bytes);
      all.emplace_back(name, std::string(bytes.begin(), bytes.end()));
    }
    return all;
  }
};

bool same(const TorchFile& a, const TorchFile& b) {
  const auto equal = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dtype == y.second.dtype && x.second.shape == y.second.shape &&
           x.second.bytes == y.second.bytes;
  };
  return a.found_at == b.found_at && a.others == b.others && std::ranges::equal(a.tensors, b.tensors, equal);
}

TEST_F(TorchFileTest, ReadsEveryKindOfTensor) {
  const TorchFile file = read_torch_file(fixture("views.pt"));
  EXPECT_EQ(file.found_at, "state_dict");
  EXPECT_TRUE(file.others.empty());
  EXPECT_EQ(file.tensors.size(), 14u);
  std::vector<float> whole(24), transposed(24);
  for (std::size_t i = 0; i < 24; ++i) {
    whole[i] = static_cast<float>(i);
    const std::size_t row = i / 4;
    transposed[i] = static_cast<float>(i % 4 * 6 + row);
  }
  EXPECT_EQ(values<float>(file, "whole"), whole);
  EXPECT_EQ(file.tensors.at("transposed").shape, (Shape{6, 4}));
  EXPECT_EQ(values<float>(file, "transposed"), transposed);
  EXPECT_EQ(values<float>(file, "part"), (std::vector<float>{7, 9, 11, 13, 15, 17}));
  EXPECT_EQ(values<float>(file, "expanded"), (std::vector<float>{7, 7, 7}));
  EXPECT_EQ(values<float>(file, "parameter"), (std::vector<float>{0.5f, -1.5f}));
  EXPECT_EQ(file.tensors.at("scalar").shape, Shape{});
  EXPECT_EQ(values<float>(file, "scalar"), std::vector<float>{2.5f});
  EXPECT_EQ(file.tensors.at("empty").shape, (Shape{0, 3}));
  EXPECT_EQ(values<std::uint16_t>(file, "half"), (std::vector<std::uint16_t>{0x3c00, 0xb800}));
  EXPECT_EQ(file.tensors.at("bfloat").dtype, DType::bfloat16);
  EXPECT_EQ(values<std::uint16_t>(file, "bfloat"), (std::vector<std::uint16_t>{0x3f80, 0xbf00}));
  EXPECT_EQ(values<double>(file, "double"), std::vector<double>{0.1});
  EXPECT_EQ(values<std::int64_t>(file, "counted"), std::vector<std::int64_t>{3});
  EXPECT_EQ(values<std::int32_t>(file, "int32"), (std::vector<std::int32_t>{-7, 70000}));
  EXPECT_EQ(values<std::uint8_t>(file, "bytes"), (std::vector<std::uint8_t>{1, 255}));
  EXPECT_EQ(values<std::uint8_t>(file, "flags"), (std::vector<std::uint8_t>{1, 0}));
}

TEST_F(TorchFileTest, ArchivesOfOtherFormsHoldTheSame) {
  const TorchFile file = read_torch_file(fixture("views.pt"));
  for (const char* name : {"protocol4.pt", "big.pt", "deflated.pt", "zip64.pt"})
    EXPECT_TRUE(same(file, read_torch_file(fixture(name)))) << name;
}

TEST_F(TorchFileTest, TensorsBesideAStateDictAreNone) {
  const TorchFile beside = read_torch_file(fixture("beside.pt"));
  EXPECT_EQ(beside.found_at, "state_dict");
  EXPECT_EQ(beside.tensors.size(), 1u);
  EXPECT_EQ(values<float>(beside, "w"), (std::vector<float>{1, 2}));
  const TorchFile extra = read_torch_file(fixture("extra.pt"));
  EXPECT_EQ(extra.found_at, "");
  EXPECT_EQ(values<float>(extra, "w"), (std::vector<float>{1, 2}));
  EXPECT_EQ(extra.others, std::vector<std::string>{"extra"});
}

/// As PyTorch wrote them before 1.6 (legacy files), also from a GPU and with pickles of another protocol.
TEST_F(TorchFileTest, FilesOfBefore16HoldTheSame) {
  const TorchFile file = read_torch_file(fixture("views.pt"));
  for (const char* name : {"old_checkpoint.pt", "old_protocol4.pt", "old_gpu.pt"})
    EXPECT_TRUE(same(file, read_torch_file(fixture(name)))) << name;
  TorchFile state = read_torch_file(fixture("old.pt"));
  state.found_at = "state_dict";
  EXPECT_TRUE(same(file, state));
}

/// PyTorch 0.3 under Python 2: dictionaries are made of lists of pairs, tensors by _rebuild_tensor, and a storage may
/// be a view of another.
TEST_F(TorchFileTest, FilesOfPython2AndViewsOfStorages) {
  const TorchFile file = read_torch_file(fixture("old_python2.pt"));
  EXPECT_EQ(values<float>(file, "a.weight"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(file.tensors.at("a.weight").shape, (Shape{2, 3}));
  EXPECT_EQ(values<float>(file, "b.weight"), (std::vector<float>{3, 4}));
}

/// torch.save(model), before 1.6 and since, and torch.jit.save: the names are those of the state_dict.
TEST_F(TorchFileTest, WholeModulesHaveTheTensorsOfTheirStateDict) {
  for (const char* name : {"module.pt", "old_module.pt", "scripted.pt"}) {
    const TorchFile file = read_torch_file(fixture(name));
    std::string names;
    for (const auto& [tensor, host] : file.tensors) names += tensor + " ";
    EXPECT_EQ(names,
              "conv.bias conv.weight norm.bias norm.num_batches_tracked norm.running_mean norm.running_var "
              "norm.weight ")
        << name;
    EXPECT_EQ(values<float>(file, "conv.weight"), (std::vector<float>{1, 2})) << name;
    EXPECT_EQ(file.module.ends_with("Sequential"), true) << file.module;
  }
  EXPECT_EQ(read_torch_file(fixture("module.pt")).found_at, "model");
}

/// No file is refused for a tensor of a type that is not read: it is listed, with its type and its shape.
TEST_F(TorchFileTest, TensorsOfOtherTypesAreListed) {
  const TorchFile file = read_torch_file(fixture("types.pt"));
  EXPECT_EQ(values<float>(file, "w"), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.tensors.size(), 1u);
  std::string text;
  for (const auto& [name, tensor] : file.skipped)
    text += name + " " + tensor.type + " " + to_string(tensor.shape) + "; ";
  EXPECT_EQ(text,
            "c complex64 (3); f8 float8_e4m3fn (4); i16 int16 (2); q torch._utils._rebuild_qtensor (2, 5); "
            "s torch._utils._rebuild_sparse_tensor (); u16 uint16 (2); ");
}

TEST_F(TorchFileTest, WhatIsRefusedIsNamed) {
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(error_at(fixture("several.pt")),
           "it has several dictionaries of tensors ('a' and 'b'): name one with --key");
  contains(error_at(fixture("several.pt"), "c"),
           "there is no dictionary of tensors 'c' in it (--key); there are 'a' and 'b'");
  contains(error_at(fixture("extra.pt"), "w"), "(--key); there are the file itself, without --key and 'extra'");
  contains(error_of("no archive"), "net.pt: is no file of PyTorch");
  contains(error_of(testing::zip_archive({{"a", "b"}}, false)), "it is a zip archive without data.pkl, of 1 file, 'a'");
  testing::Members two = members();
  two.emplace_back("other/data.pkl", "x");
  contains(error_of(testing::zip_archive(two, false)), "it has more than one data.pkl");
  testing::Members system = {{"x/data.pkl", "\x80\2cposix\nsystem\nU\4true\x85R."}};
  contains(error_of(testing::zip_archive(system, false)),
           "it holds an object that 'posix.system' would make (nothing is executed)");
  testing::Members order = members();
  for (auto& [name, bytes] : order)
    if (name.ends_with("byteorder")) bytes = "middle";
  contains(error_of(testing::zip_archive(order, false)), "its order of bytes is 'middle'");
  testing::Members lost = members();
  std::erase_if(lost, [](const auto& member) { return member.first == "views/data/1"; });
  contains(error_of(testing::zip_archive(lost, false)), "needs the storage '1', which is missing");
  const std::string old = read_file(fixture("old_checkpoint.pt"));
  contains(error_of(old.substr(0, old.size() - 1)), "it is cut short: it ends within the storage");
  contains(error_of(old.substr(0, 40)), "it is cut short");
}

TEST_F(TorchFileTest, OneOfSeveralStateDictsByItsKeys) {
  for (const char* key : {"a", "b"}) {
    const TorchFile file = read_torch_file(fixture("several.pt"), key);
    EXPECT_EQ(file.found_at, key);
    EXPECT_EQ(values<float>(file, "w"), std::vector<float>{1});
  }
  const TorchFile averages = read_torch_file(fixture("namespace.pt"), "state_dict_ema");
  EXPECT_EQ(values<float>(averages, "w"), (std::vector<float>{3, 4}));
  EXPECT_TRUE(averages.beside.empty()) << "the user has chosen";
}

/// Files of training programs hold arguments, paths and NumPy numbers beside the state_dict. None of them is made.
TEST_F(TorchFileTest, ObjectsOfOtherClassesAreSkipped) {
  const TorchFile file = read_torch_file(fixture("namespace.pt"));
  EXPECT_EQ(file.found_at, "state_dict");
  EXPECT_EQ(file.beside, (std::vector<std::string>{"state_dict_ema"}));
  EXPECT_EQ(file.tensors.size(), 1u);
  EXPECT_EQ(values<float>(file, "w"), (std::vector<float>{1, 2}));
}

/// A tensor of the storage x/data/KEY, float32, with an offset, sizes and strides, as opcodes; `elements`: a number.
std::string pickled_tensor(char key, const std::string& elements, const std::string& view) {
  using namespace std::string_literals;
  return "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1"s + key + "U\3cpu"s + elements +
         "tQ"s + view + "\x89}tR"s;
}

/// {"w": a tensor of x/data/0}
std::string pickled_view(const std::string& view, int elements) {
  using namespace std::string_literals;
  return "\x80\2}U\1w"s + pickled_tensor('0', "K"s + static_cast<char>(elements), view) + "s."s;
}

/// A function among them is not called.
TEST_F(TorchFileTest, SkippedCallsDoNothing) {
  using namespace std::string_literals;
  const std::string marker = path("executed").string(), storage(8, '\x40');
  const std::string touch = "touch " + marker;
  const auto file_of = [&](const std::string& beside) {
    const std::string tensor = pickled_tensor('0', "K\2", "K\0K\2\x85K\1\x85"s);
    return testing::zip_archive(
        {{"x/data.pkl", "\x80\2}(U\1w"s + tensor + "U\1x" + beside + "u."}, {"x/data/0", storage}}, false);
  };
  const std::string call = "cposix\nsystem\nU"s + static_cast<char>(touch.size()) + touch + "\x85R";
  for (const std::string& beside : {call, "cbuiltins\neval\n"s, "cargparse\nNamespace\n)\x81}U\1aK\1sb"s,
                                    "cm\nC\n)}\x92"s, "cm\nList\n)R(K\1K\2e"s, "cm\nDict\n)RU\1kK\1s"s}) {
    write(file_of(beside));
    const TorchFile file = read_torch_file(path("net.pt"));
    EXPECT_EQ(file.tensors.size(), 1u) << beside;
    EXPECT_EQ(file.others, std::vector<std::string>{"x"}) << beside;
  }
  EXPECT_FALSE(fs::exists(marker));
  EXPECT_NE(error_of(file_of("cm\nC\n)K\1\x92")).find("arguments by name that are no dictionary"), std::string::npos);
  EXPECT_NE(error_of(file_of("]K\1\x85R")).find("a call that is refused"), std::string::npos)
      << "a list is no function";
}

TEST_F(TorchFileTest, ExtentsThatStrideNoFurther) {
  using namespace std::string_literals;
  const std::string most = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s, storage(8, '\x40');
  write(testing::zip_archive({{"x/data.pkl", pickled_view("K\1K\1\x85"s + most + "\x85"s, 2)}, {"x/data/0", storage}},
                             false));
  EXPECT_EQ(values<std::uint32_t>(read_torch_file(path("net.pt")), "w"), std::vector<std::uint32_t>{0x40404040});
  // Without elements, but of too many.
  const std::string empty = pickled_view("K\0K\0"s + most + most + "\x87K\1K\1K\1\x87"s, 2);
  EXPECT_NE(error_of(testing::zip_archive({{"x/data.pkl", empty}, {"x/data/0", storage}}, false))
                .find("tensor 'w' has a shape that is not read: a shape's element count overflows"),
            std::string::npos);
}

/// As many tensors as there may be do not have a storage read again and again.
TEST_F(TorchFileTest, AStorageIsReadOnce) {
  using namespace std::string_literals;
  std::string pickle = "\x80\2}("s;
  for (int i = 0; i < 4000; ++i)
    pickle += fmt::format("U{}t{:04}", '\5', i) +
              pickled_tensor(i % 2 == 0 ? '0' : '1', "J\0\0\x10\0"s, "K\1K\1\x85K\1\x85"s);
  const std::string a(4 << 20, '\x40'), b(4 << 20, '\x41');
  write(testing::zip_archive({{"x/data.pkl", pickle + "u."}, {"x/data/0", a}, {"x/data/1", b}}, false));
  TorchFile file;
  EXPECT_LT(testing::cpu_seconds([&] { file = read_torch_file(path("net.pt")); }), 2)
      << "4,000 readings of 4 MiB need more";
  EXPECT_EQ(file.tensors.size(), 4000u);
  EXPECT_EQ(values<std::uint32_t>(file, "t0000"), std::vector<std::uint32_t>{0x40404040});
  EXPECT_EQ(values<std::uint32_t>(file, "t0001"), std::vector<std::uint32_t>{0x41414141});
}

/// Sizes that the file does not explain: a tensor of stride 0 with many elements, and zeros that compress well.
TEST_F(TorchFileTest, MemoryIsBoundedByTheFile) {
  using namespace std::string_literals;
  const std::string pickle = pickled_view("K\0J\xff\xff\xff\x7f\x85K\0\x85"s, 1);
  const std::string error =
      error_of(testing::zip_archive({{"x/data.pkl", pickle}, {"x/data/0", std::string(4, 'a')}}, false));
  EXPECT_NE(error.find("tensor 'w' does not lie within its storage of 1 elements, or is too large"), std::string::npos)
      << error;
  const std::string zeros(64 << 20, '\0');
  EXPECT_NE(error_of(testing::zip_archive({{"x/data.pkl", pickle}, {"x/data/0", zeros}}, true))
                .find("its members are too large for a file of its size"),
            std::string::npos);
  const std::string nothing = "\x80\2"s + std::string(2 << 20, 'N') + "."s;  // 2 million values
  EXPECT_NE(error_of(testing::zip_archive({{"x/data.pkl", nothing}}, true))
                .find("its data.pkl is too large for a file of its size"),
            std::string::npos);
}

/// The whole archive is under checksums: damage is an error, or it is where nothing of the tensors is.
TEST_F(TorchFileTest, MutatedFilesAreRefusedOrReadRight) {
  const std::string whole = read_file(fixture("views.pt"));
  const TorchFile right = read_torch_file(fixture("views.pt"));
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    write(testing::mutated(whole, seed));
    try {
      EXPECT_TRUE(same(right, read_torch_file(path("net.pt")))) << seed;
    } catch (const DataError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("net.pt"), std::string::npos) << seed << ": " << error.what();
    }
  }
  EXPECT_GT(refused, 3000);
}

/// Nothing of the form before 1.6 is under a checksum: an error, or tensors that lie within their storages. No length
/// of the file is read beyond, and no longer than its bytes explain.
TEST_F(TorchFileTest, MutatedAndTruncatedFilesOfBefore16AreRefusedOrMeanSomething) {
  int refused = 0, read = 0;
  const auto check = [&](const std::string& bytes, const std::string& what) {
    write(bytes);
    try {
      for (const auto& [name, tensor] : read_torch_file(path("net.pt")).tensors)
        EXPECT_EQ(tensor.bytes.size(), static_cast<std::size_t>(tensor.shape.elements()) * size_of(tensor.dtype));
      ++read;
    } catch (const DataError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("net.pt"), std::string::npos) << what << ": " << error.what();
    }
  };
  for (const char* name : {"old_checkpoint.pt", "old_python2.pt", "old_module.pt"}) {
    const std::string whole = read_file(fixture(name));
    for (std::uint64_t seed = 0; seed < 1000; ++seed)
      check(testing::mutated(whole, seed), fmt::format("{} {}", name, seed));
    for (std::size_t size = 0; size < whole.size(); size += 7) {
      const int before = read;
      check(whole.substr(0, size), fmt::format("{} cut to {}", name, size));
      EXPECT_EQ(read, before) << name << " cut to " << size;
    }
  }
  EXPECT_GT(refused, 1500);
  EXPECT_GT(read, 100);
}

/// A list that many dictionaries are made of, and modules that hold one another: no more work than the file has bytes.
TEST_F(TorchFileTest, ReferencesCostNoMoreThanTheirBytes) {
  using namespace std::string_literals;
  std::string list = "]q\1(";
  for (int i = 0; i < 2000; ++i) list += "U\1kK\1\x86";
  std::string pickle = "\x80\2" + list + "e0}(";
  for (int i = 0; i < 2000; ++i) pickle += "U\1xccollections\nOrderedDict\nh\1\x85R";
  EXPECT_NE(error_of(testing::zip_archive({{"x/data.pkl", pickle + "u."}}, false))
                .find("dictionaries of more entries than the file has"),
            std::string::npos);
  // 40 modules, each of which holds the one before twice: 2^40 names.
  std::string modules = "\x80\2(cm\nM\n)\x81}U\x08_modules}sbq\1";
  for (int i = 1; i < 40; ++i) {
    const std::string was = "h"s + static_cast<char>(i);
    modules += "cm\nM\n)\x81}U\x08_modules}(U\1a" + was + "U\1b" + was + "usbq" + static_cast<char>(i + 1);
  }
  std::string message;
  EXPECT_LT(testing::cpu_seconds([&] {
              message = error_of(testing::zip_archive({{"x/data.pkl", modules + "t."}}, false));
            }),
            5);
  EXPECT_NE(message.find("its modules have more than 500,000 entries"), std::string::npos) << message;
}

/// Pickles that are damaged under a right checksum: an error, or tensors that lie within their storages.
TEST_F(TorchFileTest, MutatedPicklesAreRefusedOrMeanSomething) {
  const testing::Members all = members();
  int refused = 0, read = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    testing::Members changed = all;
    for (auto& [name, bytes] : changed)
      if (name.ends_with("data.pkl")) bytes = testing::mutated(bytes, seed);
    write(testing::zip_archive(changed, seed % 2 == 0));
    try {
      for (const auto& [name, tensor] : read_torch_file(path("net.pt")).tensors)
        EXPECT_EQ(tensor.bytes.size(), static_cast<std::size_t>(tensor.shape.elements()) * size_of(tensor.dtype));
      ++read;
    } catch (const DataError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("net.pt"), std::string::npos) << seed << ": " << error.what();
    }
  }
  EXPECT_GT(refused, 2500);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace bantam::run::torch_file_test
