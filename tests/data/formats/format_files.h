// Test support: files that a test writes into its folder, and a format's readers from keys of `data:`.
#pragma once

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/data/support.h"

namespace bantam::testing {

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary);
  stream << bytes;
  ASSERT_TRUE(stream.good()) << path;
}

/// The splits of `data: {keys}`, in which $ stands for the folder.
inline SampleSplits open_format(const std::string& format, std::string keys, const std::filesystem::path& folder) {
  for (std::size_t at; (at = keys.find('$')) != std::string::npos;) keys.replace(at, 1, folder.string());
  ConfigMap data = ConfigDocument::parse(fmt::format("data: {{{}}}", keys), "t.yaml").map().map("data");
  SampleSplits splits = sample_formats().at(format)(data);
  if (splits.names_validation) (void)data.find("validation");
  data.finish();
  return splits;
}

/// A sample's fields as they are stored.
inline std::vector<std::string> fetched(const SampleReader& reader, std::int64_t index) {
  std::vector<std::vector<std::byte>> fields(reader.facts().fields().size());
  reader.fetch(index, fields);
  std::vector<std::string> texts;
  for (const auto& field : fields) texts.emplace_back(reinterpret_cast<const char*>(field.data()), field.size());
  return texts;
}

inline std::int32_t label_of(const SampleReader& reader, std::int64_t index) {
  std::int32_t label = -1;
  const std::array<std::span<std::byte>, 1> targets = {std::as_writable_bytes(std::span(&label, 1))};
  reader.read_targets(index, targets);
  return label;
}

inline std::vector<std::int32_t> labels_of(const SampleReader& reader) {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < reader.facts().size; ++i) labels.push_back(label_of(reader, i));
  return labels;
}

/// Names of a reader's samples below `folder`.
inline std::vector<std::string> names_of(const SampleReader& reader, const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < reader.facts().size; ++i)
    names.push_back(reader.name_of(i).substr(folder.string().size() + 1));
  return names;
}

}  // namespace bantam::testing
