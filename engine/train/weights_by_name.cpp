// Weights of a file into a model of other names or another head: renamed, skipped, converted, and what does not fit
// named.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/autograd/host_floats.h"
#include "bantam/engine/train/resized_embedding.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam {
namespace {

/// The texts that the wildcards of `pattern` stand for in `text`, the first as short as can be; nothing where it does
/// not match.
std::optional<std::vector<std::string>> wildcards_of(std::string_view text, std::string_view pattern) {
  const std::size_t wild = pattern.find_first_of("*?");
  if (wild == std::string_view::npos) return text == pattern ? std::optional(std::vector<std::string>()) : std::nullopt;
  if (!matches_glob(text, pattern) || text.substr(0, wild) != pattern.substr(0, wild)) return std::nullopt;
  const std::string_view rest = pattern.substr(wild + 1);
  std::size_t count = pattern[wild] == '?' ? 1 : 0;
  while (!matches_glob(text.substr(wild + count), rest)) ++count;
  auto more = wildcards_of(text.substr(wild + count), rest);
  more->insert(more->begin(), std::string(text.substr(wild, count)));
  return more;
}

/// `to` with its wildcards replaced in turn.
std::string filled(std::string_view to, std::span<const std::string> texts) {
  std::string name;
  std::size_t next = 0;
  for (const char c : to)
    if ((c == '*' || c == '?') && next < texts.size())
      name += texts[next++];
    else
      name += c;
  return name;
}

/// "'a', 'b', 'c' and 40 others".
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> first;
  for (const std::string& name : names)
    if (first.size() < kMost) first.push_back(fmt::format("'{}'", shown(name)));
  const std::size_t rest = names.size() - first.size();
  if (rest == 0) return join(first, ", ", " and ");
  return fmt::format("{} and {} other{}", join(first, ", ", ", "), rest, rest == 1 ? "" : "s");
}

template <class From>
std::vector<std::byte> converted_from(const HostTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes.size() / sizeof(From) * sizeof(float));
  for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    From value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(From), sizeof(From));
    const auto narrow = static_cast<float>(value);
    std::memcpy(bytes.data() + i * sizeof(float), &narrow, sizeof(float));
  }
  return bytes;
}

bool is_floating(DType dtype) { return dtype == DType::float32 || dtype == DType::float64 || is_half(dtype); }

/// The name or pattern nearest to `pattern`, for a message: a tensor, or all tensors of a layer, "head/*".
std::optional<std::string> nearest_pattern(const std::string& pattern, const std::vector<std::string>& names) {
  if (!pattern.ends_with("/*")) return nearest(pattern, names);
  std::vector<std::string> layers;
  for (const std::string& name : names) layers.push_back(name.substr(0, name.rfind('/')));
  auto near = nearest(pattern.substr(0, pattern.size() - 2), layers);
  if (near) *near += "/*";
  return near;
}

/// Decides for each tensor of a model what it is read from, and what is wrong.
class WeightsMatch {
 public:
  WeightsMatch(Model& model, const SafetensorsFile& file, const std::filesystem::path& path,
               const WeightsOptions& options)
      : file_(file), path_(path), options_(options) {
    for (const Parameter& parameter : model.parameters().all()) targets_.emplace(parameter.name(), parameter.master());
    for (const Buffer& buffer : model.buffers().all()) targets_.emplace(buffer.name, model.buffers().current(buffer));
    if (options.resizes_positions) grids_ = position_grids(model.graph());
    name_sources();
    check_skips();
    for (const auto& [name, tensor] : targets_) match(name, tensor.shape());
    for (const auto& [name, source] : sources_)
      if (!targets_.contains(name)) {
        result_.unused.push_back(source.first);
        unused_.push_back(name);
      }
    for (const auto& [name, skipped] : other_types_)
      if (!targets_.contains(name)) {
        result_.unused.push_back(skipped.first);
        unused_.push_back(name);
      }
    std::ranges::sort(result_.unused);
    check_names();
    convert();
    check_finite();
  }

  /// Copies all, rounded to the type that a weight is stored in; the host's values must last until the stream is
  /// synchronised.
  LoadedWeights copy(Stream stream) {
    for (const auto& [name, source] : matched_) {
      const Tensor& target = targets_.at(name);
      if (target.bytes() > 0) copy_floats(target, float_values(*source), stream);
    }
    result_.loaded = matched_.size();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: {}", path_.string(), what));
  }

  /// Converts the tensors that were matched to float32.
  void convert() {
    for (auto& [name, source] : matched_) {
      if (source->dtype == DType::float32) continue;
      source = &converted_.emplace_back(to_float32(*source));
      result_.converted.push_back(name);
    }
  }

  void check_finite() const {
    for (const auto& [name, source] : matched_) {
      const std::span<const float> values = float_values(*source);
      if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
        fail(fmt::format("tensor '{}' has values that are not finite (NaN or infinity)", shown(name)));
      if (targets_.at(name).dtype() != DType::float16) continue;
      const auto large = std::ranges::find_if(values, [](float value) { return std::isinf(float{Half(value)}); });
      if (large != values.end())
        fail(fmt::format("tensor '{}' has the value {}; the model's is float16, which ends at 65504", shown(name),
                         *large));
    }
  }

  void name_sources() {
    std::vector<bool> used(options_.rename.size());
    const auto new_name = [&](const std::string& name) {
      for (std::size_t i = 0; i < used.size(); ++i) used[i] = used[i] || matches_glob(name, options_.rename[i].from);
      return renamed(name, options_.rename);
    };
    for (const auto& [name, tensor] : file_.tensors) {
      const std::string now = new_name(name);
      const auto [other, fresh] = sources_.emplace(now, std::pair(name, &tensor));
      if (!fresh)
        fail(fmt::format("tensors '{}' and '{}' are both renamed to '{}'", shown(other->second.first), shown(name),
                         shown(now)));
    }
    for (const auto& [name, tensor] : file_.skipped) other_types_.try_emplace(new_name(name), name, tensor.type);
    const auto idle = std::ranges::find(used, false);
    if (idle != used.end())
      fail(fmt::format("rename: '{}' matches no tensor of the file",
                       shown(options_.rename[static_cast<std::size_t>(idle - used.begin())].from)));
  }

  bool is_skipped(const std::string& name) const {
    return std::ranges::any_of(options_.skip, [&](const std::string& like) { return matches_glob(name, like); });
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : targets_) all.push_back(name);
    return all;
  }

  void check_skips() const {
    const std::vector<std::string> all = names();
    for (const std::string& like : options_.skip) {
      if (std::ranges::any_of(all, [&](const std::string& name) { return matches_glob(name, like); })) continue;
      const auto near = nearest_pattern(like, all);
      fail(fmt::format("skip: '{}' matches no tensor of the model{}", shown(like),
                       near ? fmt::format("; did you mean '{}'?", *near) : ""));
    }
  }

  void match(const std::string& name, const Shape& shape) {
    const auto found = sources_.find(name);
    if (is_skipped(name)) return result_.initial.push_back(name);
    if (found == sources_.end() && !options_.skip_other_shapes) check_is_read(name);
    if (found == sources_.end()) {
      missing_.push_back(name);
      return result_.initial.push_back(name);
    }
    const HostTensor& tensor = *found->second.second;
    if (const HostTensor* resized = resized_positions(name, shape, tensor))
      return (void)matched_.emplace_back(name, resized);
    if (tensor.shape != shape || !is_floating(tensor.dtype)) {
      if (options_.skip_other_shapes) return result_.initial.push_back(name);
      fail(fmt::format(
          "tensor '{}' is {} {}, the model's '{}' is {} {}{}{}", shown(found->second.first), to_string(tensor.dtype),
          to_string(tensor.shape), shown(name), to_string(targets_.at(name).dtype()), to_string(shape),
          grids_.contains(name) ? "\n  position embeddings are resized if they have as many channels, and were trained "
                                  "for square images"
                                : "",
          options_.advises ? fmt::format("\n  a layer that shall begin anew is left out with skip: [\"{}/*\"]",
                                         shown(name.substr(0, name.rfind('/'))))
                           : ""));
    }
    matched_.emplace_back(name, &tensor);
  }

  /// A position embedding of images of another size, resized to those of the model; null for any other tensor.
  const HostTensor* resized_positions(const std::string& name, const Shape& shape, const HostTensor& tensor) {
    const auto grid = grids_.find(name);
    if (grid == grids_.end() || tensor.shape == shape || !is_floating(tensor.dtype)) return nullptr;
    const PositionGrid& to = grid->second;
    const std::optional<PositionGrid> from = grid_of(tensor.shape, to.prefix);
    if (!from || to.height == 0 || tensor.shape[-1] != shape[-1]) return nullptr;
    result_.resized.push_back(
        fmt::format("{} from {} x {} to {} x {}", name, from->height, from->width, to.height, to.width));
    return &converted_.emplace_back(resized_embedding(tensor, *from, to, shape));
  }

  /// A tensor that the model needs is not one of a type that is not read.
  void check_is_read(const std::string& name) const {
    const auto found = other_types_.find(name);
    if (found == other_types_.end()) return;
    fail(fmt::format("tensor '{}' is {}, which does not become {}", shown(found->second.first),
                     shown(found->second.second), to_string(targets_.at(name).dtype())));
  }

  void check_names() const {
    const bool wrong = options_.of_part ? !missing_.empty() : options_.strict && !(missing_.empty() && unused_.empty());
    if (!wrong && (!matched_.empty() || (options_.of_part && targets_.empty()))) return;
    std::string text = matched_.empty() ? "no tensor fits the model" : "its tensors are not those of the model";
    if (!missing_.empty()) text += fmt::format("\n  missing: {}", some_of(missing_));
    if (!unused_.empty()) text += fmt::format("\n  unexpected: {}", some_of(unused_));
    if (options_.advises) text += advice();
    fail(text);
  }

  /// By the first name that is wrong.
  std::string advice() const {
    if (!missing_.empty() && !unused_.empty()) {
      const auto near = nearest(missing_.front(), unused_);
      if (near)
        return fmt::format(
            "\n  the nearest of the file to '{}' is '{}': rename: [{{from: …, to: …}}] makes one of the "
            "other",
            shown(missing_.front()), shown(*near));
    }
    if (missing_.empty() && unused_.empty()) return "";  // all were skipped, or there are none
    if (missing_.empty()) {
      const auto near = nearest(unused_.front(), names());
      return near ? fmt::format("\n  the nearest of the model to '{}' is '{}'", shown(unused_.front()), *near)
                  : "\n  strict: false passes over them";
    }
    return "\n  tensors named by skip: […], or all with strict: false, keep their initial values";
  }

  const SafetensorsFile& file_;
  const std::filesystem::path& path_;
  const WeightsOptions& options_;
  std::map<std::string, Tensor> targets_;                                     // the model's, by name
  std::map<std::string, PositionGrid> grids_;                                 // of embeddings that may be resized
  std::map<std::string, std::pair<std::string, const HostTensor*>> sources_;  // the file's, by new name
  std::map<std::string, std::pair<std::string, std::string>> other_types_;    // by new name: the file's, and its type
  std::vector<std::pair<std::string, const HostTensor*>> matched_;
  std::vector<std::string> missing_, unused_;  // the latter by new names
  std::deque<HostTensor> converted_;           // matched_ points into it
  LoadedWeights result_;
};

}  // namespace

HostTensor to_float32(const HostTensor& tensor) {
  if (tensor.dtype == DType::float32) return tensor;
  HostTensor made{DType::float32, tensor.shape, {}};
  made.bytes = tensor.dtype == DType::float64   ? converted_from<double>(tensor)
               : tensor.dtype == DType::float16 ? converted_from<Half>(tensor)
                                                : converted_from<BFloat16>(tensor);
  return made;
}

std::string renamed(std::string_view name, const std::vector<WeightsOptions::Rename>& renames) {
  for (const WeightsOptions::Rename& rename : renames)
    if (const auto texts = wildcards_of(name, rename.from)) return filled(rename.to, *texts);
  return std::string(name);
}

LoadedWeights load_weights(Model& model, const SafetensorsFile& file, const std::filesystem::path& path,
                           const WeightsOptions& options) {
  WeightsMatch match(model, file, path, options);
  const Stream stream = model.runtime().stream(model.device());
  LoadedWeights loaded = match.copy(stream);
  const Context context = model.context(Pass::train);
  model.parameters().refresh_compute(context);
  model.buffers().reset_next(context);
  if (std::ranges::any_of(model.buffers().all(), [&](const Buffer& buffer) {
        return !std::ranges::binary_search(loaded.initial, buffer.name);
      }))
    model.buffers().set_settled(true);
  synchronize(stream);
  return loaded;
}

}  // namespace bantam
