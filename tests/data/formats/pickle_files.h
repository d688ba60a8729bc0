// Test support: batches of CIFAR's Python version, as Python 2 pickled them, and tar archives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/data/formats/array_files.h"

namespace bantam::testing {

using PickledLabels = std::vector<std::pair<std::string, std::vector<int>>>;

/// {'batch_label': …, each list of labels, 'data': uint8 (rows, …) of `pixels`, 'filenames': […]}, protocol 2.
inline std::string python2_batch(const PickledLabels& labels, std::size_t rows, const std::string& pixels) {
  const auto text = [](const std::string& value) {
    return "U" + std::string(1, static_cast<char>(value.size())) + value;
  };
  const auto number = [](std::size_t value) {
    std::string bytes(1, 'J');
    append_number(bytes, value, 4);
    return bytes;
  };
  std::string bytes = "\x80\x02}q\x01(" + text("batch_label") + "q\x02" + text("training batch 1 of 5") + "q\x03";
  for (const auto& [key, values] : labels) {
    bytes += text(key) + "]q\x05(";
    for (const int value : values) bytes += "K" + std::string(1, static_cast<char>(value));
    bytes += "e";
  }
  bytes += text("data") + "cnumpy.core.multiarray\n_reconstruct\nq\x06" + "cnumpy\nndarray\nq\x07";
  bytes += std::string("K\0\x85", 3) + text("b") + "\x87R(K\x01" + number(rows) + number(pixels.size() / rows) + "\x86";
  bytes += "cnumpy\ndtype\nq\x09" + text("u1") + std::string("K\0K\1\x87R", 6) + "(K\x03" + text("|") + "NNN";
  bytes += number(0xffffffff) + number(0xffffffff) + std::string("K\0tb\x89T", 6);
  append_number(bytes, pixels.size(), 4);
  return bytes + pixels + "tb" + text("filenames") + "](" + text("a.png") + text("b.png") + "eu.";
}

/// As tar writes it (POSIX.1-1988, ustar): a folder, then each file below it.
inline std::string tar_archive(const std::string& folder, const Members& members) {
  const auto header = [](const std::string& name, std::size_t size, char kind) {
    std::string bytes = name + std::string(100 - name.size(), '\0') +
                        std::string(
                            "0000644\0"
                            "0000000\0"
                            "0000000\0",
                            24) +
                        fmt::format("{:011o}", size) + '\0' + std::string(11, '0') + '\0' + std::string(8, ' ') + kind;
    bytes += std::string(100, '\0') + std::string(
                                          "ustar\0"
                                          "00",
                                          8);
    bytes.resize(512);
    unsigned sum = 0;
    for (const char c : bytes) sum += static_cast<unsigned char>(c);
    bytes.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
    return bytes;
  };
  std::string bytes = header(folder + "/", 0, '5');
  for (const auto& [name, content] : members) {
    bytes += header(folder + "/" + name, content.size(), '0') + content;
    bytes.resize((bytes.size() + 511) / 512 * 512);
  }
  return bytes + std::string(1024, '\0');
}

}  // namespace bantam::testing
