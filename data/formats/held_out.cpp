// A choice of samples by classes, and readers of its two parts.
#include "bantam/data/formats/held_out.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <unordered_map>
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

/// Numbers below `size` in random order.
Samples shuffled(std::int64_t size, std::uint64_t seed) {
  Samples order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  PhiloxSequence random(philox_key(seed, RandomPurpose::shuffle, hash_name("held out")));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

/// The samples of each class, shuffled; all together where there are no labels.
std::vector<Samples> by_class(const SamplesToSplit& split) {
  Samples order = shuffled(split.samples, split.seed);
  if (split.labels.empty()) return {std::move(order)};
  std::map<std::int32_t, Samples> classes;
  for (const std::int32_t sample : order) classes[split.labels[static_cast<std::size_t>(sample)]].push_back(sample);
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

/// Chooses each class's share, and never all of a class. Classes whose shares round to nothing have theirs together: of
/// each at most one sample is chosen, and none of a class of one sample.
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

/// So many samples of each class that they are `wanted` together: its share, rounded down, and one more of those that
/// lose most by it; never all of a class, as long as others have samples left.
std::vector<std::int64_t> quotas(const std::vector<Samples>& classes, std::int64_t samples, std::int64_t wanted) {
  std::vector<std::int64_t> quotas;
  std::vector<std::pair<double, std::size_t>> losses;
  std::int64_t left = wanted;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const double exact =
        static_cast<double>(wanted) * static_cast<double>(classes[c].size()) / static_cast<double>(samples);
    quotas.push_back(std::min(static_cast<std::int64_t>(exact), std::ssize(classes[c]) - 1));
    left -= quotas.back();
    losses.emplace_back(static_cast<double>(quotas.back()) - exact, c);
  }
  std::ranges::sort(losses);
  for (const std::int64_t spared : {1, 0})  // a sample of each class stays in training, if it goes
    for (bool goes_on = true; left > 0 && goes_on;) {
      goes_on = false;
      for (const auto& [loss, c] : losses)
        if (left > 0 && quotas[c] + spared < std::ssize(classes[c])) {
          ++quotas[c];
          --left;
          goes_on = true;
        }
    }
  return quotas;
}

/// Samples by the numbers that they have in `numbers`.
std::vector<Samples> gathered(std::span<const std::int32_t> numbers) {
  std::unordered_map<std::int32_t, std::size_t> places;
  std::vector<Samples> lists;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [place, is_new] = places.emplace(numbers[i], lists.size());
    if (is_new) lists.emplace_back();
    lists[place->second].push_back(static_cast<std::int32_t>(i));
  }
  return lists;
}

/// Whole groups, in random order, large ones first: each is held out where that brings the classes' shares nearer to
/// `share` than before.
Samples held_out_groups(const SamplesToSplit& split, double share) {
  const std::vector<Samples> groups = gathered(split.groups);
  if (groups.size() < 2)
    throw DataError("samples to hold out: all are of one group, which cannot be split in two (data.group)");
  std::vector<Samples> order;
  for (const std::int32_t g : shuffled(std::ssize(groups), split.seed))
    order.push_back(groups[static_cast<std::size_t>(g)]);
  std::ranges::stable_sort(order, std::greater(), &Samples::size);
  const auto class_of = [&](std::int32_t sample) {
    return split.labels.empty() ? 0 : split.labels[static_cast<std::size_t>(sample)];
  };
  std::map<std::int32_t, double> sizes, lacking;  // of each class: samples; those that its share still lacks
  for (std::int32_t i = 0; i < split.samples; ++i) ++sizes[class_of(i)];
  for (const auto& [label, size] : sizes) lacking[label] = share * size;
  Samples out;
  std::size_t groups_out = 0;
  for (const Samples& group : order) {
    std::map<std::int32_t, double> counts;
    for (const std::int32_t sample : group) ++counts[class_of(sample)];
    double gain = 0;  // less squared distance, each class by its size
    for (const auto& [label, count] : counts) gain += count * (2 * lacking[label] - count) / sizes[label];
    if (gain <= 0 || groups_out + 1 == order.size()) continue;
    ++groups_out;
    for (const auto& [label, count] : counts) lacking[label] -= count;
    out.insert(out.end(), group.begin(), group.end());
  }
  return out.empty() ? order.back() : out;
}

Parts parts_of(std::int64_t samples, Samples held_out) {
  Parts parts{.train = {}, .held_out = std::move(held_out)};
  std::ranges::sort(parts.held_out);
  Samples all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  std::ranges::set_difference(all, parts.held_out, std::back_inserter(parts.train));
  return parts;
}

/// The choice, made when the first of the two parts is used.
struct Choice {
  std::shared_ptr<const SampleReader> all;
  double share;
  Once once;
  Parts parts;

  const Parts& made() {
    once.run([this] {
      const std::vector<std::int32_t> labels = class_numbers(*all), groups = all->groups();
      parts = hold_out({.samples = all->facts().size, .labels = labels, .groups = groups}, share);
    });
    return parts;
  }
};

std::string read_name(ConfigMap& data, ConfigKey key) {
  const auto node = data.find(key);
  return node ? node->as_text() : "";
}

}  // namespace

Parts hold_out(const SamplesToSplit& split, double share) {
  if (split.samples < 2)
    throw DataError(fmt::format("samples to hold out: a set of {} cannot be split in two", split.samples));
  if (!split.groups.empty()) return parts_of(split.samples, held_out_groups(split, share));
  return parts_of(split.samples, held_out_samples(by_class(split), share));
}

Parts hold_out_exactly(const SamplesToSplit& split, std::int64_t wanted) {
  const std::vector<Samples> classes = by_class(split);
  const std::vector<std::int64_t> counts = quotas(classes, split.samples, wanted);
  Samples out;
  for (std::size_t c = 0; c < classes.size(); ++c) hold_out_of(classes[c], counts[c], out);
  return parts_of(split.samples, std::move(out));
}

std::vector<std::int32_t> class_numbers(const SampleReader& reader) {
  const DatasetFacts facts = reader.facts();
  std::vector<std::vector<std::byte>> values;
  std::optional<std::size_t> field;
  for (const SampleField& target : facts.targets) {
    if (target.name == "labels" && target.shape.rank() == 0 && target.dtype == DType::int32) field = values.size();
    values.emplace_back(target.encoding == FieldEncoding::values ? target.bytes() : 0);
  }
  std::vector<std::int32_t> labels;
  if (!field) return labels;
  labels.resize(static_cast<std::size_t>(facts.size));
  const std::vector<std::span<std::byte>> buffers(values.begin(), values.end());
  for (std::int64_t i = 0; i < facts.size; ++i) {
    reader.read_targets(i, buffers);
    std::memcpy(&labels[static_cast<std::size_t>(i)], values[*field].data(), sizeof(std::int32_t));
  }
  return labels;
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
