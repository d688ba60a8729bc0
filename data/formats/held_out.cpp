// A choice of samples by classes, and readers of its two parts.
#include "bantam/data/formats/held_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/files/once.h"

namespace bantam {
namespace {

/// Passes all calls on to a reader that the first of them makes.
class LaterReader : public WrappedReader {
 public:
  explicit LaterReader(std::function<std::shared_ptr<const SampleReader>()> make) : make_(std::move(make)) {}

 private:
  const SampleReader& inner() const override {
    once_.run([this] { reader_ = make_(); });
    return *reader_;
  }

  std::function<std::shared_ptr<const SampleReader>()> make_;
  mutable Once once_;
  mutable std::shared_ptr<const SampleReader> reader_;
};

using Samples = std::vector<std::int32_t>;

/// The samples of each class, shuffled; all together where there are no labels.
std::vector<Samples> by_class(std::int64_t samples, std::span<const std::int32_t> labels) {
  Samples order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  PhiloxSequence random(philox_key(0, RandomPurpose::shuffle, hash_name("held out")));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  if (labels.empty()) return {std::move(order)};
  std::map<std::int32_t, Samples> classes;
  for (const std::int32_t sample : order) classes[labels[static_cast<std::size_t>(sample)]].push_back(sample);
  std::vector<Samples> lists;
  for (auto& [label, list] : classes) lists.push_back(std::move(list));
  return lists;
}

std::int64_t rounded_share(double share, std::size_t samples) {
  return std::llround(share * static_cast<double>(samples));
}

/// `wanted` of the samples into `out`, evenly spread over their order.
void hold_out_of(const Samples& samples, std::int64_t wanted, Samples& out) {
  const std::int64_t size = std::ssize(samples);
  for (std::int64_t i = 0; i < size; ++i)
    if ((i + 1) * wanted / size > i * wanted / size) out.push_back(samples[static_cast<std::size_t>(i)]);
}

/// Of each class its share, and never all of it. Classes whose shares round to nothing have theirs together: of each at
/// most one sample, and none of a class of one sample.
Samples held_out_samples(const std::vector<Samples>& classes, double share) {
  Samples out, small;
  for (const Samples& list : classes) {
    const std::int64_t wanted = std::min(rounded_share(share, list.size()), std::ssize(list) - 1);
    if (wanted > 0)
      hold_out_of(list, wanted, out);
    else if (list.size() > 1)
      small.insert(small.end(), list.begin(), list.end());
  }
  hold_out_of(small, rounded_share(share, small.size()), out);
  // A split has two parts, whatever the share.
  if (out.empty()) out.push_back(std::ranges::max_element(classes, {}, &Samples::size)->front());
  return out;
}

std::vector<std::int32_t> labels_of(const SampleReader& reader) {
  const DatasetFacts facts = reader.facts();
  if (!facts.has_int32_target()) return {};
  std::vector<std::int32_t> labels(static_cast<std::size_t>(facts.size));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::array<std::span<std::byte>, 1> target = {std::as_writable_bytes(std::span(&labels[i], 1))};
    reader.read_targets(static_cast<std::int64_t>(i), target);
  }
  return labels;
}

/// The choice, made when the first of the two parts is used.
struct Choice {
  std::shared_ptr<const SampleReader> all;
  double share;
  Once once;
  Parts parts;

  const Parts& made() {
    once.run([this] { parts = hold_out(all->facts().size, labels_of(*all), share); });
    return parts;
  }
};

std::string read_name(ConfigMap& data, ConfigKey key) {
  const auto node = data.find(key);
  return node ? node->as_text() : "";
}

}  // namespace

Parts hold_out(std::int64_t samples, std::span<const std::int32_t> labels, double share) {
  if (samples < 2) throw DataError(fmt::format("samples to hold out: a set of {} cannot be split in two", samples));
  Parts parts{.train = {}, .held_out = held_out_samples(by_class(samples, labels), share)};
  std::ranges::sort(parts.held_out);
  Samples all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  std::ranges::set_difference(all, parts.held_out, std::back_inserter(parts.train));
  return parts;
}

std::shared_ptr<const SampleReader> reader_made_by(std::function<std::shared_ptr<const SampleReader>()> make) {
  return std::make_shared<LaterReader>(std::move(make));
}

SampleSplits split_off(std::shared_ptr<const SampleReader> all, double share) {
  auto choice = std::make_shared<Choice>();
  choice->all = std::move(all);
  choice->share = share;
  return {reader_made_by([choice] { return chosen_samples(choice->all, choice->made().train); }),
          reader_made_by([choice] { return chosen_samples(choice->all, choice->made().held_out); }), nullptr, false,
          choice->all};
}

PartNames read_part_names(ConfigMap& data, std::string_view what) {
  PartNames names;
  const std::string train = fmt::format("{} of the training samples.", what);
  const std::string test = fmt::format(
      "{} of the test samples, which a run looks at once, at its end. `validation: NAME` names that of the samples "
      "that "
      "it is evaluated on while it trains; without it they are those of `test`.",
      what);
  names.train = read_name(data, {"train", train, "training", "found by its name"});
  names.test = read_name(data, {"test", test, "testing", "found by its name"});
  if (!data.self().is_described())  // `data.validation` describes the key
    if (const auto validation = data.find("validation"); validation && validation->is_scalar())
      names.validation = validation->as_text();
  if (const auto split = data.find({"split",
                                    "Share that is held out where no part of the set is: the same samples in every "
                                    "run, as nearly that share of each class as it goes.",
                                    "0.2", "0.1"}))
    names.split = split->as_number({.min = 0, .max = 1, .min_open = true, .max_open = true});
  return names;
}

SampleSplits splits_of_parts(std::shared_ptr<const SampleReader> train, std::shared_ptr<const SampleReader> validation,
                             std::shared_ptr<const SampleReader> test, const PartNames& names) {
  if (validation == nullptr && test == nullptr) {
    SampleSplits splits = split_off(std::move(train), names.share());
    splits.names_validation = true;
    return splits;
  }
  if (validation == nullptr) std::swap(validation, test);
  return {std::move(train), std::move(validation), std::move(test), true};
}

}  // namespace bantam
