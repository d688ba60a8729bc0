// One function a reader. Those that read files get the bytes as a file of a folder of this process.
#include "tests/fuzz/readers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bantam/base/config/config.h"
#include "bantam/base/config/expression.h"
#include "bantam/base/error.h"
#include "bantam/cli/train/http_request.h"
#include "bantam/data/files/archive.h"
#include "bantam/data/files/npy_array.h"
#include "bantam/data/files/pickle.h"
#include "bantam/data/files/zip.h"
#include "bantam/data/formats/csv_table.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/images/decode.h"
#include "bantam/engine/comm/frame_stream.h"
#include "bantam/engine/comm/handshake.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/memory/device/device_profile.h"
#include "bantam/models/onnx/onnx_import.h"
#include "bantam/models/onnx/onnx_model.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/metrics_history.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/weights/torch_file.h"

namespace bantam::testing {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;

std::string text_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// A folder in memory, where there is one, that ends with the process.
class Scratch {
 public:
  Scratch() {
    const fs::path memory = "/dev/shm";
    std::error_code error;
    path_ = (fs::is_directory(memory, error) ? memory : fs::temp_directory_path()) /
            fmt::format("bantam-fuzz-{}", ::getpid());
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const fs::path& scratch() {
  static const Scratch folder;
  return folder.path();
}

fs::path file_of(Bytes bytes, const char* name) {
  fs::path path = scratch() / name;
  write_file(path, text_of(bytes));
  return path;
}

// Text.

void read_yaml(Bytes bytes) {
  const ConfigDocument document = ConfigDocument::parse(text_of(bytes), "fuzz.yaml");
  (void)document.values();
  const std::string resolved = document.resolved_yaml();
  if (ConfigDocument::parse(resolved, "resolved.yaml").values() != document.values()) std::abort();
  (void)run::parse_run_config(text_of(bytes), "fuzz.yaml", {}, run::DataSection::skip);
}

void read_expression(Bytes bytes) {
  const Expression expression(text_of(bytes));
  (void)expression.names();
  (void)expression.evaluate([](const Expression::Name& name) -> ExpressionValue {
    if (name.name.size() % 2 == 0) return std::int64_t{3};
    return 2.5;
  });
}

void read_metrics(Bytes bytes) {
  const fs::path path = file_of(bytes, "metrics.jsonl");
  (void)run::MetricsFile(path).read(100);
}

void read_run_record(Bytes bytes) { (void)run::load_record(file_of(bytes, "run.json")); }

void read_checkpoint(Bytes bytes) {
  const fs::path folder = scratch() / "update-00000008";
  fs::create_directories(folder);
  run::Checkpoint checkpoint{.path = folder, .updates = 8};
  write_file(checkpoint.weights(), "12345678");
  write_file(checkpoint.state(), "12345678");
  write_file(checkpoint.facts(), text_of(bytes));
  (void)checkpoint.read();
}

void read_gpu_profile(Bytes bytes) { (void)load_device_profile(file_of(bytes, "profile.yaml")); }

/// The first byte says how the columns are named.
void read_csv(Bytes bytes) {
  if (bytes.empty()) return;
  const std::uint8_t flags = bytes[0];
  CsvColumns columns;
  if ((flags & 1) != 0) columns.labels.push_back({.name = "label"});
  if ((flags & 2) != 0) columns.targets.push_back({.name = "", .number = 1});
  if ((flags & 4) != 0) columns.image = CsvColumn{.name = "", .number = 0};
  if ((flags & 8) != 0) columns.separator = "|";
  columns.missing = std::array{CsvMissing::error, CsvMissing::drop, CsvMissing::mean, CsvMissing::mean}[flags >> 4 & 3];
  if ((flags & 64) != 0) columns.dialect.decimal = ',';
  const fs::path path = file_of(bytes.subspan(1), "table.csv");
  (void)inspect_csv(path, columns);
  (void)read_csv_table(path, columns);
}

// Arrays and archives.

void read_array(const NpyArray& array) {
  array.load();
  if (array.type().is_text()) {
    if (array.rows() > 0) (void)array.read_text(0);
    return;
  }
  if (array.rows() == 0 || array.row_values() > 1 << 20) return;
  std::vector<float> values(static_cast<std::size_t>(array.row_values()));
  array.read_rows(0, values);
  array.read_rows(array.rows() - 1, values);
}

void read_npy(Bytes bytes) { read_array(NpyArray(memory_bytes("fuzz.npy", {bytes.begin(), bytes.end()}))); }

void read_npz(Bytes bytes) {
  const ZipFile zip(file_of(bytes, "arrays.npz"));
  for (const auto& [name, member] : zip.members()) {
    try {
      read_array(NpyArray(zip.open(name)));
    } catch (const Error&) {  // the next member may be sound
    }
  }
}

void read_tar(Bytes bytes) {
  (void)read_members(file_of(bytes, "archive.tar.gz"), {"data_batch_1.bin", "batches.meta.txt", "a"}, 1 << 20);
}

void read_pickle(Bytes bytes) {
  const Pickle pickle("fuzz.pkl", {bytes.begin(), bytes.end()});
  (void)pickle.at("data", PickledValue::Kind::array);
}

void read_idx(Bytes bytes) {
  static const fs::path folder = [] {
    const fs::path path = scratch() / "idx";
    fs::create_directories(path);
    const auto labels = std::string("\0\0\x08\x01\0\0\0\2", 8) + std::string("\1\0", 2);
    const auto images = std::string("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2", 16) + "abcdefgh";
    write_file(path / "train-labels-idx1-ubyte", labels);
    write_file(path / "t10k-labels-idx1-ubyte", labels);
    write_file(path / "t10k-images-idx3-ubyte", images);
    return path;
  }();
  write_file(folder / "train-images-idx3-ubyte", text_of(bytes));
  ConfigMap keys = ConfigDocument::parse(fmt::format("path: {}", folder.string()), "idx.yaml").map();
  const SampleSplits splits = sample_formats().at("idx")(keys);
  const DatasetFacts facts = splits.train->facts();
  splits.train->check(false, 1);
  if (facts.size == 0 || facts.sample_bytes() > 1 << 20) return;
  std::vector<std::vector<std::byte>> fields(facts.fields().size());
  splits.train->fetch(0, fields);
  splits.train->fetch(facts.size - 1, fields);
}

// Weights and models.

void read_safetensors(Bytes bytes) { (void)parse_safetensors(text_of(bytes), "fuzz.safetensors"); }
void read_torch(Bytes bytes) { (void)run::read_torch_file(file_of(bytes, "weights.pt")); }
void read_onnx(Bytes bytes) { (void)onnx::import_model(onnx::parse(text_of(bytes), scratch() / "network.onnx")); }

// Images.

/// Reads images of few pixels: larger ones take a mutation no further.
void read_image(Bytes bytes) {
  constexpr std::int64_t kMost = 1 << 20;
  const auto file = std::as_bytes(bytes);
  const ImageHeader header = read_image_header(file);
  if (header.size.height * header.size.width > kMost) return;
  Image image, scratch;
  for (const std::int64_t channels : {1, 3, 4}) {
    decode_image(file, channels, image);
    const auto expected = static_cast<std::size_t>(header.size.height * header.size.width * channels);
    if (!(image.size == header.size) || image.pixels.size() != expected) std::abort();
  }
  const ImageSize half{std::max<std::int64_t>(1, header.size.height / 2),
                       std::max<std::int64_t>(1, header.size.width / 2)};
  decode_sampled(file, 3, {.top = 0, .left = 0, .window = half, .size = {5, 7}, .mirrored = true}, scratch, image);
}

/// Files of one type alone, so that each has a corpus of its own.
template <ImageFileType type>
void read_image_of(Bytes bytes) {
  if (read_image_header(std::as_bytes(bytes)).type == type) read_image(bytes);
}

// Messages of browsers and of other ranks.

/// A status that the first bytes have does not change with those that follow.
void read_http_request(Bytes bytes) {
  const std::string text = text_of(bytes);
  const cli::ParsedHttpRequest whole = cli::parse_http_request(text);
  const int half = cli::parse_http_request(text.substr(0, text.size() / 2)).status;
  if (half != 0 && half != whole.status) std::abort();
  if (whole.status != 200) throw DataError(fmt::format("status {}", whole.status));
  (void)cli::is_own_request(whole.request, true, 8080);
  (void)cli::is_own_request(whole.request, false, 8080);
}

void read_hello(Bytes bytes) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) return;
  FrameStream stream{FileDescriptor(ends[0])};
  const FileDescriptor other(ends[1]);
  (void)!::write(ends[1], bytes.data(), std::min<std::size_t>(bytes.size(), 32768));
  stream.receive();
  const std::string secret = "secret", context = "hello 1 2";
  const auto look = [](const handshake::Json& message) {
    (void)handshake::failure_in(message);
    for (const char* name : {"run", "version", "host", "nonce", "token"}) (void)handshake::text_at(message, name);
    for (const char* name : {"protocol", "rank", "size", "port"}) (void)handshake::number_at(message, name);
    (void)handshake::to_text(message);
  };
  while (const std::optional<std::string> frame = stream.next()) {
    const handshake::Json message = handshake::parse(*frame);
    if (message.is_null()) throw DataError("no message");
    look(message);
    if (handshake::unsealed(secret, context, *frame)) std::abort();  // nobody guesses a proof
    if (const auto known = handshake::unsealed(secret, context, handshake::sealed(secret, context, message)))
      look(*known);
  }
}

constexpr auto kReaders = std::to_array<FuzzedReader>({
    {"checkpoint_json", read_checkpoint},
    {"csv", read_csv},
    {"expression", read_expression},
    {"gpu_profile", read_gpu_profile},
    {"hello", read_hello},
    {"http_request", read_http_request},
    {"idx", read_idx},
    {"jpeg", read_image_of<ImageFileType::jpeg>},
    {"metrics", read_metrics},
    {"npy", read_npy},
    {"npz", read_npz},
    {"onnx", read_onnx},
    {"other_images", read_image},
    {"pickle", read_pickle},
    {"png", read_image_of<ImageFileType::png>},
    {"run_json", read_run_record},
    {"safetensors", read_safetensors},
    {"tar", read_tar},
    {"torch", read_torch},
    {"webp", read_image_of<ImageFileType::webp>},
    {"yaml", read_yaml},
});

}  // namespace

std::span<const FuzzedReader> fuzzed_readers() { return kReaders; }

bool accepts(const FuzzedReader& reader, std::span<const std::uint8_t> bytes) {
  try {
    reader.read(bytes);
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: not bantam::Error: %s\n", std::string(reader.name).c_str(), error.what());
    std::abort();
  }
}

}  // namespace bantam::testing
