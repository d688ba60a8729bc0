#include "bantam/data/formats/mask_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace bantam {
namespace {

constexpr std::array<std::string_view, 22> kSuffixes = {
    "_mask",   "-mask",   ".mask",    "_Mask",        "_MASK",         "_seg",        "-seg", "_label",
    "_labels", "-label",  "_gt",      "_GT",          "_segmentation", "_annotation", "_L",   "_manual1",
    "_lab",    "_target", "_mask_gt", "_groundtruth", "_labelIds",     "_matte"};
constexpr std::array<std::string_view, 8> kPrefixes = {"mask_", "mask-",  "Mask_", "mask",
                                                       "seg_",  "label_", "gt_",   "labels_"};

using Names = std::unordered_set<std::string_view>;

/// "deep/" and "a" of "deep/a".
std::pair<std::string_view, std::string_view> folder_and_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t end = slash == std::string_view::npos ? 0 : slash + 1;
  return {path.substr(0, end), path.substr(end)};
}

bool has(std::string_view name, std::string_view prefix, std::string_view suffix) {
  return name.size() > prefix.size() + suffix.size() && name.starts_with(prefix) && name.ends_with(suffix);
}

/// Images that have a mask; in one folder no file is its own.
std::size_t pairs(std::span<const std::string> images, const Names& masks, const MaskNames& names, bool one_folder) {
  return static_cast<std::size_t>(std::ranges::count_if(images, [&](const std::string& image) {
    const auto mask = names.mask_of(image);
    return mask && (!one_folder || *mask != image) && masks.contains(*mask);
  }));
}

/// The longest image's name that a mask's name holds, and what is around it.
std::optional<MaskNames> around_image(std::string_view mask, const Names& images) {
  const auto [folder, name] = folder_and_name(mask);
  for (std::size_t length = name.size(); length > 0; --length)
    for (std::size_t begin = 0; begin + length <= name.size(); ++begin)
      if (images.contains(std::string(folder) + std::string(name.substr(begin, length))))
        return MaskNames{.prefix = std::string(name.substr(0, begin)),
                         .suffix = std::string(name.substr(begin + length))};
  return std::nullopt;
}

/// Finds the prefix and suffix that all names share. Digits next to the rest of a name belong to the parts that differ.
std::pair<std::string, std::string> common_ends(std::span<const std::string> paths) {
  std::string_view prefix = folder_and_name(paths[0]).second, suffix = prefix;
  for (const std::string& path : paths) {
    const std::string_view name = folder_and_name(path).second;
    while (!name.starts_with(prefix)) prefix.remove_suffix(1);
    while (!name.ends_with(suffix)) suffix.remove_prefix(1);
  }
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (!prefix.empty() && is_digit(prefix.back())) prefix.remove_suffix(1);
  while (!suffix.empty() && is_digit(suffix.front())) suffix.remove_prefix(1);
  return {std::string(prefix), std::string(suffix)};
}

}  // namespace

std::optional<std::string> MaskNames::mask_of(const std::string& image) const {
  const auto [folder, name] = folder_and_name(image);
  if (!has(name, image_prefix, image_suffix)) return std::nullopt;
  const std::string_view common =
      name.substr(image_prefix.size(), name.size() - image_prefix.size() - image_suffix.size());
  return std::string(folder) + prefix + std::string(common) + suffix;
}

bool MaskNames::is_mask(const std::string& name) const { return has(folder_and_name(name).second, prefix, suffix); }

std::optional<MaskNames> read_mask_names(ConfigMap& masks) {
  MaskNames names;
  bool given = false;
  const auto read = [&](ConfigKey key, std::string& to) {
    if (const auto node = masks.find(key)) {
      to = node->as_text();
      given = true;
    }
  };
  read({"suffix", "What masks' names have after their images': _mask of a_mask.png, the mask of a.jpg.", "_mask",
        "found by the names"},
       names.suffix);
  read({"prefix", "What masks' names have before their images': mask_ of mask_07.png.", "mask_", "found by the names"},
       names.prefix);
  read({"image_suffix", "What images' names have after the common part, which masks' names have not.", "_image",
        "found by the names"},
       names.image_suffix);
  read({"image_prefix", "What images' names have before the common part, which masks' names have not.", "image_",
        "found by the names"},
       names.image_prefix);
  return given ? std::optional(names) : std::nullopt;
}

std::optional<MaskNames> find_mask_names(std::span<const std::string> images, std::span<const std::string> masks) {
  if (images.empty() || masks.empty()) return std::nullopt;
  const bool one_folder = images.data() == masks.data();
  const Names of_masks(masks.begin(), masks.end()), of_images(images.begin(), images.end());
  std::vector<MaskNames> tried;
  for (const std::string_view suffix : kSuffixes) tried.push_back({.suffix = std::string(suffix)});
  for (const std::string_view prefix : kPrefixes) tried.push_back({.prefix = std::string(prefix)});
  if (!one_folder) {
    tried.insert(tried.begin(), MaskNames());
    constexpr std::size_t kLooked = 20;
    for (std::size_t i = 0; i < std::min(masks.size(), kLooked); ++i)
      if (const auto names = around_image(masks[i * masks.size() / std::min(masks.size(), kLooked)], of_images))
        tried.push_back(*names);
    const auto [image_prefix, image_suffix] = common_ends(images);
    const auto [prefix, suffix] = common_ends(masks);
    // Cityscapes' masks lie beside drawings of them, and both have endings in place of the images'.
    for (const std::string_view ending : {"_gtFine_labelTrainIds", "_gtFine_labelIds", "_gtCoarse_labelIds"})
      tried.push_back({.suffix = std::string(ending), .image_suffix = image_suffix});
    for (const std::string_view ending : kSuffixes)
      tried.push_back({.suffix = std::string(ending), .image_suffix = image_suffix});
    for (const bool with_prefix : {true, false})
      for (const bool with_suffix : {true, false})
        tried.push_back({.prefix = with_prefix ? prefix : "",
                         .suffix = with_suffix ? suffix : "",
                         .image_prefix = with_prefix ? image_prefix : "",
                         .image_suffix = with_suffix ? image_suffix : ""});
  }
  const MaskNames* best = nullptr;
  std::size_t most = 0;
  for (const MaskNames& names : tried) {
    const std::size_t found = pairs(images, of_masks, names, one_folder);
    const auto named = static_cast<std::size_t>(
        std::ranges::count_if(masks, [&](const std::string& name) { return names.is_mask(name); }));
    if (found <= most || 2 * found < (one_folder ? named : std::min(images.size(), masks.size()))) continue;
    most = found;
    best = &names;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace bantam
