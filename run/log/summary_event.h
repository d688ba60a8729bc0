// SummaryEvent: one event of TensorBoard's files, with any number of values. Fields as in TensorFlow's event.proto and
// summary.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/protobuf.h"
#include "bantam/data/images/image.h"
#include "bantam/run/log/histogram.h"

namespace bantam::run {

/// Seconds since 1970, with fractions.
double wall_time();

/// Values at one step.
class SummaryEvent {
 public:
  void add_scalar(std::string_view tag, float value);
  void add_histogram(std::string_view tag, const Histogram& histogram);
  /// As PNG, of 1, 3 or 4 channels.
  void add_image(std::string_view tag, const Image& image);
  /// Markdown.
  void add_text(std::string_view tag, std::string_view markdown);
  /// Adds a message that the hparams plugin reads (HParamsPluginData).
  void add_hparams(std::string_view tag, const ProtoWriter& content);
  bool empty() const { return summary_.text().empty(); }
  /// The event's bytes.
  std::string text(std::int64_t step) const;

 private:
  ProtoWriter summary_;
};

/// The first event of a file.
std::string version_event();
/// An event with a graph (GraphDef).
std::string graph_event(std::string_view graph);

}  // namespace bantam::run
