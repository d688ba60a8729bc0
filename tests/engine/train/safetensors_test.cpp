// Weights and state: round trips, foreign and damaged files.
#include "bantam/engine/train/safetensors.h"

#include <cstring>
#include <ctime>
#include <fstream>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "tests/cpu_seconds.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::safetensors_test {
namespace {

using bantam::testing::cpu_seconds;

using testing::EngineTest;
namespace fs = std::filesystem;

class SafetensorsTest : public EngineTest {
 protected:
  SafetensorsTest() { fs::create_directories(folder_); }
  ~SafetensorsTest() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::path(::testing::TempDir()) / ("safetensors" + std::to_string(::getpid()));
};
BANTAM_INSTANTIATE_ON_DEVICES(SafetensorsTest);

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> weights(Model& model) {
  std::vector<float> all;
  for (const Parameter& parameter : model.parameters().all()) {
    const std::vector<float> values = to_host_floats(parameter.master(), model.runtime().stream(model.device()));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_P(SafetensorsTest, WeightsAndStatisticsComeBack) {
  const ModelOptions options{.precision = {PrecisionKind::mixed_float16}, .seed = 1};
  Model a(runtime(), device(), testing::small_network(), options);
  Model b(runtime(), device(), testing::small_network(), {.precision = options.precision, .seed = 2});
  ASSERT_NE(weights(a), weights(b));
  save_weights(a, folder_ / "w.safetensors");
  load_weights(b, folder_ / "w.safetensors");
  EXPECT_EQ(weights(a), weights(b));
  const Stream stream = runtime().stream(device());
  EXPECT_EQ(to_host_floats(a.parameters().compute(), stream), to_host_floats(b.parameters().compute(), stream));
  const SafetensorsFile file = read_safetensors(folder_ / "w.safetensors");
  EXPECT_TRUE(file.tensors.contains("block/norm1/running_variance"));
  EXPECT_EQ(file.tensors.at("separable/pointwise_weight").shape, (Shape{12, 1, 1, 8}));
  EXPECT_EQ(file.metadata.at("format"), "bantam");
}

TEST_P(SafetensorsTest, StateGoesOnAsIfNothingHappened) {
  const auto make = [&](std::uint64_t seed) {
    struct Run {
      Run(Runtime& runtime, Device device, std::uint64_t seed)
          : model(runtime, device, testing::small_network(),
                  {.precision = {PrecisionKind::mixed_float16}, .seed = seed}),
            optimizer(model, {}),
            step(model, optimizer, {}) {
        model.register_state(registry);
        optimizer.register_state(registry);
        registry.add_counter(
            "epoch", [this] { return epoch; }, [this](std::int64_t value) { epoch = value; });
      }
      void train(int first, int steps) {
        for (int i = first; i < first + steps; ++i)
          step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, i * 8, 8));
      }
      Model model;
      Optimizer optimizer;
      TrainingStep step;
      StateRegistry registry;
      std::int64_t epoch = 0;
    };
    return std::make_unique<Run>(runtime(), device(), seed);
  };
  auto whole = make(1), first = make(1), second = make(1);
  const Stream stream = runtime().stream(device());
  whole->train(0, 6);
  first->train(0, 3);
  first->epoch = 7;
  save_state(first->registry, stream, folder_ / "s.safetensors");
  second->train(10, 2);  // something else, to be overwritten
  load_state(second->registry, stream, folder_ / "s.safetensors");
  EXPECT_EQ(second->epoch, 7);
  second->train(3, 3);
  EXPECT_EQ(weights(whole->model), weights(second->model));
  EXPECT_EQ(whole->optimizer.control().updates, second->optimizer.control().updates);
}

/// Float16 weights: trained, saved as they are, gone on with bit for bit; what needs masters is refused.
TEST_P(SafetensorsTest, WeightsWithoutMastersTrainAndComeBack) {
  const Stream stream = runtime().stream(device());
  const ModelOptions options{.precision = {PrecisionKind::float16}, .seed = 1};
  struct Run {
    Run(Runtime& runtime, Device device, const ModelOptions& options)
        : model(runtime, device, testing::small_network(), options),
          optimizer(model, {.rule = adam({.learning_rate = 0.01f})}),
          step(model, optimizer, {}) {
      model.register_state(registry);
      optimizer.register_state(registry);
    }
    void train(int steps) {
      for (int i = 0; i < steps; ++i) step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8));
    }
    Model model;
    Optimizer optimizer;
    TrainingStep step;
    StateRegistry registry;
  };
  Run whole(runtime(), device(), options), first(runtime(), device(), options), second(runtime(), device(), options);
  EXPECT_EQ(whole.model.parameters().find("separable/pointwise_weight")->master().dtype(), DType::float16);
  EXPECT_EQ(whole.model.parameters().find("block/norm1/scale")->master().dtype(), DType::float32);
  const std::vector<float> start = weights(whole.model);
  whole.train(12);
  first.train(5);
  save_state(first.registry, stream, folder_ / "half.safetensors");
  second.train(2);
  load_state(second.registry, stream, folder_ / "half.safetensors");
  second.train(7);
  EXPECT_NE(weights(whole.model), start);
  EXPECT_EQ(weights(whole.model), weights(second.model));
  EXPECT_GT(whole.optimizer.control().updates, 0);
  save_weights(whole.model, folder_ / "w.safetensors");
  const SafetensorsFile file = read_safetensors(folder_ / "w.safetensors");
  EXPECT_EQ(file.tensors.at("separable/pointwise_weight").dtype, DType::float16);
  Model wide(runtime(), device(), testing::small_network(), {.precision = {PrecisionKind::mixed_float16}, .seed = 3});
  (void)load_weights(wide, file, folder_ / "w.safetensors", {});
  EXPECT_EQ(weights(wide), weights(whole.model)) << "widened";
  save_weights(wide, folder_ / "wide.safetensors");
  Model narrow(runtime(), device(), testing::small_network(), options);
  (void)load_weights(narrow, read_safetensors(folder_ / "wide.safetensors"), folder_ / "wide.safetensors", {});
  EXPECT_EQ(weights(narrow), weights(whole.model)) << "and narrowed again";
  try {
    const Optimizer averaging(whole.model, {.ema = EmaOptions{}});
    FAIL() << "an average of weights that are not there";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "optimizer: ema averages float32 weights, of which precision float16 keeps none; expected precision "
                 "float32, mixed_float16 or mixed_bfloat16");
  }
}

TEST_P(SafetensorsTest, SettingsStayAsConfiguredAfterALoad) {
  const auto make = [&](PrecisionKind kind, float clip, const auto& use) {
    Model model(runtime(), device(), testing::small_network(), {.precision = {kind}, .seed = 1});
    Optimizer optimizer(model, {.clip_norm = clip});
    StateRegistry registry;
    model.register_state(registry);
    optimizer.register_state(registry);
    use(registry, optimizer);
  };
  const Stream stream = runtime().stream(device());
  make(PrecisionKind::float32, 0.0f,
       [&](StateRegistry& registry, Optimizer&) { save_state(registry, stream, folder_ / "s"); });
  make(PrecisionKind::mixed_float16, 0.5f, [&](StateRegistry& registry, Optimizer& optimizer) {
    load_state(registry, stream, folder_ / "s");
    EXPECT_EQ(optimizer.control().clip_norm, 0.5f);
    EXPECT_EQ(optimizer.control().growth_interval, 2000);
    EXPECT_EQ(optimizer.control().loss_scale, 32768.0f);
  });
  StateRegistry twice;
  twice.add_counter(
      "a", [] { return 0; }, [](std::int64_t) {});
  EXPECT_THROW(twice.add("a", context().allocate({1}, DType::float32)), Error);
  Model meta(runtime(), Device::meta_of(device()), testing::small_network(), {});
  EXPECT_THROW(save_weights(meta, folder_ / "meta"), DeviceError);
}

TEST_P(SafetensorsTest, AFileThatDoesNotFitChangesNothing) {
  Model model(runtime(), device(), testing::small_network(), {});
  const std::vector<float> before = weights(model);
  Graph other({8, 8, 3});
  other.add(flatten());
  other.add("head", dense({.units = 5}));
  Model small(runtime(), device(), other, {});
  const fs::path path = folder_ / "w.safetensors";
  save_weights(small, path);
  EXPECT_EQ(error_of([&] { load_weights(model, path); }), path.string() + ": tensor 'stem/weight' is missing");
  EXPECT_EQ(weights(model), before);
  save_weights(model, path);
  EXPECT_EQ(error_of([&] { load_weights(small, path); }),
            path.string() + ": tensor 'head/weight' is float32 (5, 48), expected float32 (5, 192)");
}

TEST_P(SafetensorsTest, DamagedFilesAreNamed) {
  const fs::path path = folder_ / "x.safetensors";
  const auto error = [&](const std::string& bytes) {
    write_file_atomically(path, bytes);
    return error_of([&] { (void)read_safetensors(path); });
  };
  const auto with_header = [](const std::string& header, const std::string& data) {
    std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  };
  const std::string prefix = path.string() + ": not a usable safetensors file: ";
  EXPECT_EQ(error("abc"), prefix + "3 bytes is too short for a header");
  EXPECT_EQ(error(std::string(8, '\xff')),
            prefix + "the header's length 18446744073709551615 is beyond the file's 8 bytes");
  EXPECT_EQ(error(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
            prefix + "tensor 'a' (2) needs 8 bytes; its offsets are [0,4] of 4 bytes of data");
  EXPECT_EQ(error(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234")),
            prefix + "tensor 'a' (2) needs 8 bytes; its offsets are [0,8] of 4 bytes of data");
  EXPECT_EQ(error(with_header(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,8]}})", "12345678")),
            prefix + "tensor 'a' (2) needs 2 bytes; its offsets are [0,8] of 8 bytes of data");
  EXPECT_EQ(error(with_header(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,9]}})", "12345678")),
            prefix + "tensor 'a' (2) needs 2 bytes; its offsets are [0,9] of 8 bytes of data");
  EXPECT_EQ(
      error(with_header(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "1234")),
      prefix + "tensors overlap or have a gap at byte 4 of the data");
  EXPECT_EQ(error(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345678")),
            prefix + "4 bytes of data belong to no tensor");
  EXPECT_NE(error(with_header("{", "")).find("its header is not as expected"), std::string::npos);
  EXPECT_NE(error(with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "")).find("not negative"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)read_safetensors(folder_ / "absent"); }).find("absent"), std::string::npos);
}

/// Types that a model never has, and those of formats to come: listed, and errors only where a tensor is needed.
TEST_P(SafetensorsTest, TensorsOfOtherTypesAreListed) {
  const fs::path path = folder_ / "x.safetensors";
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BOOL","shape":[3],"data_offsets":[4,7]},)"
      R"("c":{"dtype":"F8_E5M2","shape":[],"data_offsets":[7,8]},"d":{"dtype":"F4","shape":[4],"data_offsets":[8,10]},)"
      R"("e":{"dtype":"I16","shape":[0],"data_offsets":[10,10]}})";
  const std::uint64_t length = header.size();
  write_file_atomically(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + "0123456789");
  const SafetensorsFile file = read_safetensors(path);
  EXPECT_EQ(file.tensors.size(), 1u);
  ASSERT_EQ(file.skipped.size(), 4u);
  EXPECT_EQ(file.skipped.at("b").type, "BOOL");
  EXPECT_EQ(file.skipped.at("b").shape, Shape{3});
  EXPECT_EQ(file.skipped.at("d").type, "F4");
}

/// A header after its length, as files begin.
std::string with_length(const std::string& header) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header;
}

TEST(SafetensorsHeader, ManyTensorsAndEntriesAreReadAndWrittenInSeconds) {
  const fs::path path = fs::path(::testing::TempDir()) / ("many" + std::to_string(::getpid()));
  SafetensorsFile file;
  for (int i = 0; i < 60'000; ++i) {
    const std::string name = "block" + std::to_string(i) + "/weight";
    file.tensors.emplace(name, HostTensor{DType::uint8, {1}, std::vector<std::byte>(1, std::byte(i))});
  }
  for (int i = 0; i < 200'000; ++i) file.metadata.emplace("key" + std::to_string(i), "value");
  EXPECT_LT(cpu_seconds([&] { write_safetensors(path, file); }), 5);
  SafetensorsFile read;
  EXPECT_LT(cpu_seconds([&] { read = read_safetensors(path); }), 5);
  EXPECT_EQ(read.metadata, file.metadata);
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  EXPECT_EQ(read.tensors.at("block59999/weight").bytes, file.tensors.at("block59999/weight").bytes);
  fs::remove(path);
}

TEST(SafetensorsHeader, HeadersAtTheCapEndInSeconds) {
  constexpr std::size_t kMost = 100'000'000;
  const fs::path path = fs::path(::testing::TempDir()) / ("cap" + std::to_string(::getpid()));
  const auto filled = [](std::string header, const auto& entry, const std::string& end) {
    header.reserve(kMost);
    for (int i = 0;; ++i) {
      const std::string next = entry(i);
      if (header.size() + next.size() + end.size() > kMost) break;
      header += next;
    }
    header += end;
    header.resize(kMost, ' ');
    return header;
  };
  const auto repeated = [](std::string header, const std::string& pattern) {
    const std::size_t begin = header.size();
    header.resize(kMost);
    for (std::size_t i = begin; i < kMost; ++i) header[i] = pattern[(i - begin) % pattern.size()];
    return header;
  };
  const auto scattered = [](int i) { return std::to_string(static_cast<std::uint32_t>(i) * 2654435761u); };
  const auto error = [&](const std::string& header) {
    std::ofstream(path, std::ios::binary) << with_length(header);
    std::string message;
    EXPECT_LT(cpu_seconds([&] { message = error_of([&] { (void)read_safetensors(path); }); }), 5);
    fs::remove(path);
    return message.substr(message.find(": ") + 2);
  };
  const std::string begin = "not a usable safetensors file: ";
  EXPECT_EQ(error(filled(
                "{\"__metadata__\":{", [&](int i) { return "\"" + scattered(i) + "\":\"\","; }, "\"a\":\"\"}}")),
            begin + "its metadata has more than 250,000 entries");
  EXPECT_EQ(
      error(filled(
          "{",
          [&](int i) { return "\"" + scattered(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"; },
          "\"a\":{}}")),
      begin + "it has more than 100,000 tensors");
  EXPECT_EQ(error(repeated("{\"a\":{\"shape\":[", "0,")),
            begin + "its header is not as expected (tensor 'a': shape is a list of more than 8)");
  EXPECT_NE(error(repeated("{\"a\":{\"b\":", "[")).find("its header is not as expected"), std::string::npos);
  const std::string long_name = error("{\"" + std::string(kMost - 100, 'x') + "\":1}");
  EXPECT_EQ(long_name.substr(0, begin.size() + 32 + 53 + 3),
            begin + "its header is not as expected ('" + std::string(53, 'x') + "…");
  EXPECT_LT(long_name.size(), 300u);
  EXPECT_EQ(error(std::string(kMost + 1, ' ')),
            begin + "its header has 100,000,001 bytes; at most 100,000,000 are read");
}

TEST(SafetensorsHeader, NumbersNamesAndPlacesAreChecked) {
  const fs::path path = fs::path(::testing::TempDir()) / ("checked" + std::to_string(::getpid()));
  const auto error = [&](const std::string& header, const std::string& data = "1234") {
    write_file_atomically(path, with_length(header) + data);
    const std::string message = error_of([&] { (void)read_safetensors(path); });
    fs::remove(path);
    const std::string begin = path.string() + ": not a usable safetensors file: ";
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  };
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string good = tensor("[1]", "[0,4]");
  EXPECT_EQ(error("{\"a\":" + good + "}"), "no error");
  EXPECT_EQ(error("{\"a\":{\"more\":{\"x\":[1,{}]}," + good.substr(1) + "}"), "no error")
      << "as the reference reads it";
  // Beyond 64 bits the parser has a floating-point number, which no integer type can be cast from.
  EXPECT_EQ(error("{\"a\":" + tensor("[92233720368547709515615]", "[0,4]") + "}"),
            "tensor 'a': shape: 92233720368547709515615 is out of range: more than 64 bits can count");
  EXPECT_EQ(error("{\"a\":" + tensor("[9223372036854775808]", "[0,4]") + "}"),
            "tensor 'a': shape: 9223372036854775808 is out of range: more than 64 bits can count");
  EXPECT_EQ(error("{\"a\":" + tensor("[1]", "[0,-92233720368547709515615]") + "}"),
            "tensor 'a': data_offsets: -92233720368547709515615 is out of range: more than 64 bits can count");
  EXPECT_EQ(error("{\"a\":" + tensor("[1.5]", "[0,4]") + "}"),
            "its header is not as expected (tensor 'a': shape is 1.5)");
  EXPECT_EQ(error("{\"a\":" + tensor("[1]", "[-4,0]") + "}"),
            "tensor 'a' (1) needs 4 bytes; its offsets are [-4,0] of 4 bytes of data");
  EXPECT_EQ(error("{\"a\":" + good + ",\"a\":" + good + "}"), "two tensors are named 'a'");
  EXPECT_EQ(error(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "two entries of its metadata are named 'k'");
  EXPECT_EQ(error(R"({"__metadata__":{"k":1}})", ""), "its header is not as expected (metadata 'k' is 1)");
  EXPECT_EQ(error(R"({"__metadata__":[]})", ""), "its header is not as expected ('__metadata__' is a list)");
  EXPECT_EQ(error("[]", ""), "its header is not as expected (the header is a list)");
  EXPECT_EQ(error(R"({"a":{"dtype":"F32","shape":[1]}})"),
            "its header is not as expected (tensor 'a' has no data_offsets)");
  EXPECT_EQ(error("{\"a\\u001b[31m\":null}"), "its header is not as expected ('a\\x1b[31m' is null)");
}

TEST_P(SafetensorsTest, AChangedByteIsFound) {
  Model model(runtime(), device(), testing::small_network(), {});
  const std::vector<float> before = weights(model);
  const fs::path path = folder_ / "w.safetensors";
  save_weights(model, path);
  const std::string whole = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  for (const std::size_t at : {8 + length, (8 + length + whole.size()) / 2, whole.size() - 1}) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file_atomically(path, bytes);
    EXPECT_NE(
        error_of([&] { load_weights(model, path); }).find(path.string() + ": damaged: its tensors have the checksum"),
        std::string::npos)
        << "byte " << at;
    EXPECT_EQ(weights(model), before);
  }
  write_file_atomically(path, whole);
  const SafetensorsFile file = read_safetensors(path);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "bantam"}}));
}

TEST_P(SafetensorsTest, FilesWithoutAChecksumAreRead) {
  Model model(runtime(), device(), testing::small_network(), {}),
      other(runtime(), device(), testing::small_network(), {.seed = 9});
  const fs::path path = folder_ / "w.safetensors";
  save_weights(model, path);
  std::string bytes = read_file(path);
  const std::size_t at = bytes.find("bantam.checksum");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 15, "another.program");
  write_file_atomically(path, bytes);
  load_weights(other, path);
  EXPECT_EQ(weights(other), weights(model));
}

/// Names of files are any bytes; JSON is UTF-8. A tensor under another name would not be found again.
TEST_P(SafetensorsTest, TextsThatAreNotUtf8) {
  SafetensorsFile file;
  file.metadata["class_names"] = "caf\xe9";
  write_safetensors(folder_ / "a", file);
  EXPECT_EQ(read_safetensors(folder_ / "a").metadata.at("class_names"), "caf\xef\xbf\xbd");
  file.tensors["caf\xe9"] = {DType::uint8, {1}, std::vector<std::byte>(1)};
  EXPECT_NE(error_of([&] { write_safetensors(folder_ / "b", file); }).find("expected a name in UTF-8"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "b"));
}

}  // namespace
}  // namespace bantam::safetensors_test
