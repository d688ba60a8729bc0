// Messages within messages, by the numbers of their fields.
#include "bantam/run/log/summary_event.h"

#include <chrono>

#include "bantam/data/images/encode.h"

namespace bantam::run {
namespace {

// Event
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kGraph = 4, kSummary = 5;
// Summary and Summary.Value
constexpr std::uint32_t kValue = 1, kTag = 1, kSimple = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9;
// SummaryMetadata
constexpr std::uint32_t kPlugin = 1, kPluginName = 1, kPluginContent = 2;
// TensorProto
constexpr std::uint32_t kDType = 1, kTensorShape = 2, kStrings = 8;
constexpr std::int64_t kFloat = 1, kString = 7;

ProtoWriter tagged_value(std::string_view tag) {
  ProtoWriter value;
  value.bytes(kTag, tag);
  return value;
}

ProtoWriter metadata_of(std::string_view plugin, std::string_view content) {
  ProtoWriter data, metadata;
  data.bytes(kPluginName, plugin);
  if (!content.empty()) data.bytes(kPluginContent, content);
  metadata.message(kPlugin, data);
  return metadata;
}

/// TensorShapeProto of one dimension without values: a tensor that says nothing.
ProtoWriter no_values() {
  ProtoWriter dimension, shape;
  dimension.integer(1, 0);
  shape.message(2, dimension);
  return shape;
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void SummaryEvent::add_scalar(std::string_view tag, float value) {
  ProtoWriter proto = tagged_value(tag);
  proto.number(kSimple, value);
  summary_.message(kValue, proto);
}

void SummaryEvent::add_histogram(std::string_view tag, const Histogram& histogram) {
  ProtoWriter histo, proto = tagged_value(tag);
  histo.number(1, histogram.minimum);
  histo.number(2, histogram.maximum);
  histo.number(3, static_cast<double>(histogram.finite));
  histo.number(4, histogram.sum);
  histo.number(5, histogram.sum_of_squares);
  histo.numbers(6, std::span<const double>(histogram.edges).subspan(1));  // upper limits
  const std::vector<double> counts(histogram.counts.begin(), histogram.counts.end());
  histo.numbers(7, std::span<const double>(counts));
  proto.message(kHisto, histo);
  summary_.message(kValue, proto);
}

void SummaryEvent::add_image(std::string_view tag, const Image& image) {
  ProtoWriter picture, proto = tagged_value(tag);
  picture.integer(1, image.size.height);
  picture.integer(2, image.size.width);
  picture.integer(3, image.channels);
  picture.bytes(4, encode_png(image));
  proto.message(kImage, picture);
  summary_.message(kValue, proto);
}

void SummaryEvent::add_text(std::string_view tag, std::string_view markdown) {
  ProtoWriter tensor, proto = tagged_value(tag);
  tensor.integer(kDType, kString);
  tensor.message(kTensorShape, {});
  tensor.bytes(kStrings, markdown);
  proto.message(kTensor, tensor);
  proto.message(kMetadata, metadata_of("text", ""));
  summary_.message(kValue, proto);
}

void SummaryEvent::add_hparams(std::string_view tag, const ProtoWriter& content) {
  ProtoWriter tensor, proto = tagged_value(tag);
  tensor.integer(kDType, kFloat);
  tensor.message(kTensorShape, no_values());
  proto.message(kTensor, tensor);
  proto.message(kMetadata, metadata_of("hparams", content.text()));
  summary_.message(kValue, proto);
}

std::string SummaryEvent::text(std::int64_t step) const {
  ProtoWriter event;
  event.number(kWallTime, wall_time());
  event.integer(kStep, step);
  event.message(kSummary, summary_);
  return event.text();
}

std::string version_event() {
  ProtoWriter event;
  event.number(kWallTime, wall_time());
  event.bytes(kFileVersion, "brain.Event:2");
  return event.text();
}

std::string graph_event(std::string_view graph) {
  ProtoWriter event;
  event.number(kWallTime, wall_time());
  event.bytes(kGraph, graph);
  return event.text();
}

}  // namespace bantam::run
