#include "bantam/run/init/found_masks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/formats/mask_names.h"
#include "bantam/data/images/mask.h"
#include "bantam/run/init/found_files.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string small(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool has_any(const std::string& text, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

/// A folder whose name says that masks lie there, or drawings of them, or those of instances.
bool is_of_labels(const std::string& folder) {
  constexpr std::array<std::string_view, 9> kWords = {"mask", "label", "annot",  "seg",   "ground",
                                                      "gt",   "lbl",   "trimap", "target"};
  const std::string name = small(folder);
  return has_any(name, kWords) || name == "ann" || name.starts_with("ann_");
}

/// One with masks of classes.
bool is_of_masks(const std::string& folder) {
  constexpr std::array<std::string_view, 5> kOthers = {"object", "instance", "viz", "visual", "overlay"};
  return is_of_labels(folder) && !has_any(small(folder), kOthers);
}

/// A folder whose name says that images lie there.
bool is_of_images(const std::string& folder) {
  constexpr std::array<std::string_view, 4> kWords = {"image", "img", "photo", "picture"};
  return has_any(small(folder), kWords);
}

Names stems_of(const Names& files) {
  Names stems;
  for (const std::string& file : files) stems.push_back(fs::path(file).replace_extension().string());
  return stems;
}

Names images_in(const fs::path& folder) { return stems_of(list_image_files(folder).names); }

/// As yaml_text; names that begin with "_" need no quotes.
std::string plain_text(const std::string& text) {
  const bool is_plain = text.starts_with('_') && text.size() > 1 && text.find_first_not_of('_') != std::string::npos &&
                        std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_plain ? text : yaml_text(text);
}

/// Keys of `masks` for a folder and names.
Names place_keys(const std::string& folder, const MaskNames& names) {
  Names keys;
  if (folder != "masks") keys.push_back("folder: " + yaml_text(folder));
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) keys.push_back(fmt::format("{}: {}", key, plain_text(value)));
  };
  add("prefix", names.prefix);
  add("suffix", names.suffix);
  add("image_prefix", names.image_prefix);
  add("image_suffix", names.image_suffix);
  return keys;
}

/// Label Studio's "task-7-annotation-9-by-1-tag-ant-0": the number is that of a task, of no image's name.
bool is_of_label_studio(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return name.starts_with("task-") && name.find("-annotation-") != std::string::npos;
}

struct FoundPair {
  std::string images, masks;
  MaskNames names;
};

/// Folders below `place` that hold masks: its own, and those within, as annotations/trimaps.
Names mask_folders(const fs::path& place) {
  constexpr std::array<std::string_view, 5> kFirst = {"segmentationclasspng", "segmentationclass", "masks", "mask",
                                                      "masks_machine"};
  Names found;
  for (const std::string& folder : list_folder(place).folders) {
    if (!is_of_masks(folder)) continue;
    found.push_back(folder);
    for (const std::string& inner : list_folder(place / folder).folders) found.push_back(folder + "/" + inner);
  }
  const auto rank = [&](const std::string& folder) {
    return std::ranges::find(kFirst, small(folder)) - kFirst.begin();
  };
  std::ranges::stable_sort(found, {}, rank);
  return found;
}

std::optional<FoundPair> pair_in(const fs::path& place) {
  Names images;
  for (const std::string& folder : list_folder(place).folders)
    if (!is_of_labels(folder)) images.push_back(folder);
  Names all_masks = mask_folders(place);
  // Images of a test may have the same names.
  for (Names* folders : {&images, &all_masks})
    std::ranges::stable_partition(*folders, [](const std::string& folder) {
      return std::ranges::none_of(kTestFolders, [&](std::string_view part) { return small(folder).starts_with(part); });
    });
  for (const std::string& masks : all_masks) {
    const Names of_masks = images_in(place / masks);
    if (of_masks.empty() || is_of_label_studio(of_masks[0])) continue;
    for (const std::string& folder : images)
      if (const auto names = find_mask_names(images_in(place / folder), of_masks))
        return FoundPair{folder, masks, *names};
  }
  return std::nullopt;
}

/// Images and masks beside each other.
std::optional<FoundPair> pair_of_files(const fs::path& place) {
  Names files, jpegs, others;
  for (const std::string& name : list_folder(place).files) {
    if (!has_image_suffix(name)) continue;
    files.push_back(name);
    const bool is_jpeg = small(name).ends_with(".jpg") || small(name).ends_with(".jpeg");
    (is_jpeg ? jpegs : others).push_back(fs::path(name).replace_extension().string());
  }
  const Names stems = stems_of(files);
  if (const auto names = find_mask_names(stems, stems)) return FoundPair{".", ".", *names};
  if (jpegs.empty() || others.empty()) return std::nullopt;
  const auto names = find_mask_names(jpegs, others);
  return names && names->is_plain() ? std::optional(FoundPair{".", ".", *names}) : std::nullopt;
}

/// "train_labels" as "{part}_labels", where another part has such folders, too.
void name_parts(const fs::path& place, FoundPair& pair) {
  for (const std::string_view part : kTrainFolders) {
    const std::size_t in_images = small(pair.images).find(part), in_masks = small(pair.masks).find(part);
    if (in_images == std::string::npos || in_masks == std::string::npos) continue;
    const auto with = [&](const std::string& name, std::size_t at, std::string_view other) {
      return std::string(name).replace(at, part.size(), other);
    };
    const auto is_there = [&](std::string_view other) {
      return is_folder(place / with(pair.images, in_images, other)) &&
             is_folder(place / with(pair.masks, in_masks, other));
    };
    if (pair.images.substr(in_images, part.size()) != part || pair.masks.substr(in_masks, part.size()) != part) return;
    if (!std::ranges::any_of(kValidationFolders, is_there) && !std::ranges::any_of(kTestFolders, is_there)) return;
    pair.images = with(pair.images, in_images, "{part}");
    pair.masks = with(pair.masks, in_masks, "{part}");
    return;
  }
}

/// The file that names the classes, in one of the folders.
std::vector<ListedClass> listed_in(const std::vector<fs::path>& places) {
  constexpr std::array<std::string_view, 13> kFiles = {
      "labelmap.txt",   "label_map.txt",    "class_names.txt",  "classes.txt",       "_classes.csv",
      "class_dict.csv", "label_colors.csv", "label_colors.txt", "label_colours.txt", "class_names.csv",
      "classes.csv",    "labels.txt",       "colormap.txt"};
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  for (const std::string_view wanted : kFiles)
    for (const fs::path& place : places)
      for (const std::string& name : list_folder(place).files)
        if (small(name) == wanted && size_of_file(place / name) <= kMostBytes)
          if (std::vector<ListedClass> classes = read_listed_classes(read_file(place / name)); !classes.empty())
            return classes;
  return {};
}

/// Keys that name the lists of parts, as Pascal VOC's and CVAT's ImageSets/Segmentation/train.txt; where there are
/// lists of training and held-out images.
Names list_keys(const fs::path& at) {
  for (const char* folder : {"ImageSets/Segmentation", "ImageSets"}) {
    if (!is_folder(at / folder)) continue;
    const Names files = list_folder(at / folder).files;
    const auto list_of = [&](std::span<const std::string_view> parts) -> std::string {
      for (const std::string_view part : parts)
        for (const std::string& name : files)
          if (small(name) == std::string(part) + ".txt" && size_of_file(at / folder / name) > 0)
            return fmt::format("{}/{}", folder, name);
      return "";
    };
    const std::string train = list_of(kTrainFolders), validation = list_of(kValidationFolders),
                      test = list_of(kTestFolders);
    if (train.empty() || (validation.empty() && test.empty())) continue;
    Names keys = {"train: " + yaml_text(train)};
    if (!validation.empty()) keys.push_back("validation: " + yaml_text(validation));
    if (!test.empty()) keys.push_back("test: " + yaml_text(test));
    return keys;
  }
  return {};
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kAround = " \t\r,:;\"'";
  const std::size_t first = text.find_first_not_of(kAround);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kAround) - first + 1));
}

bool is_short_number(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A line cut at commas, colons, semicolons and tabs; where it has none, at spaces.
Names cells_of(const std::string& line) {
  const bool spaces = line.find_first_of(",:;\t") == std::string::npos;
  Names cells(1);
  for (const char c : line) {
    const bool cuts = c == ',' || c == ':' || c == ';' || c == '\t' || (spaces && c == ' ');
    if (cuts)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  // "64 128 64\tAnimal": numbers between spaces are cells of their own.
  Names parts;
  for (const std::string& cell : cells) {
    std::istringstream words(cell);
    Names inner;
    for (std::string word; words >> word;) inner.push_back(word);
    if (inner.size() > 1 && std::ranges::all_of(inner, is_short_number))
      parts.insert(parts.end(), inner.begin(), inner.end());
    else
      parts.push_back(trimmed(cell));
  }
  return parts;
}

std::optional<MaskValue> value_of(const std::vector<std::int64_t>& numbers) {
  if (numbers.size() == 1) return MaskValue::of_number(numbers[0]);
  if (numbers.size() < 3) return std::nullopt;
  // An id before a colour says no more than the colour.
  const auto last = numbers.end() - 3;
  return parse_mask_value(fmt::format("[{}, {}, {}]", last[0], last[1], last[2]));
}

std::string joined_words(const Names& words) { return fmt::format("{}", fmt::join(words, " ")); }

}  // namespace

std::vector<ListedClass> read_listed_classes(const std::string& text) {
  std::vector<ListedClass> classes;
  std::set<std::string> seen;
  std::istringstream lines(text);
  bool first = true;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (trimmed(line).empty() || line.starts_with('#')) continue;
    const Names cells = cells_of(line);
    std::vector<std::int64_t> numbers;
    Names words;
    for (const std::string& cell : cells) {
      if (is_short_number(cell))
        numbers.push_back(std::stoll(cell));
      else if (!cell.empty())
        words.push_back(cell);
    }
    constexpr std::array<std::string_view, 6> kHeads = {"name", "class", "label", "pixel", "value", "id"};
    const bool is_head = std::exchange(first, false) && numbers.empty() && words.size() > 1 &&
                         std::ranges::all_of(words, [&](const std::string& word) {
                           return word.size() == 1 || has_any(small(word), kHeads);
                         });
    if (words.empty() || is_head) continue;
    // Where a line has separators, its first word is the name; else a name of several words.
    const bool separated = line.find_first_of(",:;\t") != std::string::npos;
    const std::string name = separated ? words.front() : joined_words(words);
    if (name == "__ignore__" || !seen.insert(name).second) continue;
    classes.push_back({name, value_of(numbers)});
  }
  return classes;
}

std::optional<FoundData> find_masks(const fs::path& at) {
  if (!is_folder(at)) return std::nullopt;
  std::vector<fs::path> places = {at};
  for (const std::string& part : find_folders(at, kTrainFolders)) places.push_back(at / part);
  for (const fs::path& place : places) {
    std::optional<FoundPair> pair = pair_in(place);
    if (!pair) pair = pair_of_files(place);
    if (!pair) continue;
    if (place == at) name_parts(place, *pair);
    FoundData found{"segmentation_folder", {"path: " + yaml_text(at.string())}};
    if (pair->images != "images") found.keys.push_back("images: " + yaml_text(pair->images));
    if (place == at)
      for (std::string& key : list_keys(at)) found.keys.push_back(std::move(key));
    found.mask_place = place_keys(pair->masks, pair->names);
    std::vector<fs::path> listing = places;
    if (at.has_parent_path()) listing.push_back(at.parent_path());
    for (const ListedClass& listed : listed_in(listing)) found.listed_classes.push_back(listed);
    return found;
  }
  return std::nullopt;
}

void refuse_unpaired_masks(const fs::path& at) {
  if (!is_folder(at)) return;
  const Names folders_of_all = list_folder(at).folders;
  const auto has_no_images = [&](const std::string& folder) {
    return is_of_labels(folder) || list_image_files(at / folder).names.empty();
  };
  constexpr std::array<std::string_view, 2> kVoc = {"segmentationclass", "segmentationclasspng"};
  if (const std::string masks = first_of(folders_of_all, kVoc); !masks.empty() &&
                                                                std::ranges::all_of(folders_of_all, has_no_images) &&
                                                                !list_image_files(at / masks).names.empty())
    throw DataError(fmt::format(
        "{}: has masks ({}), but not the images that they are of: put these into JPEGImages beside it, or export again "
        "with them (CVAT: \"Save images\")",
        at.string(), printable(masks)));
  std::vector<fs::path> places = {at};
  for (const std::string& part : find_folders(at, kTrainFolders)) places.push_back(at / part);
  for (const fs::path& place : places) {
    const Names folders = list_folder(place).folders;
    for (const std::string& images : folders)
      for (const std::string& masks : folders) {
        if (!is_of_images(images) || is_of_masks(images) || !is_of_masks(masks)) continue;
        const Names of_images = list_image_files(place / images).names,
                    of_masks = list_image_files(place / masks).names;
        if (of_images.empty() || of_masks.empty()) continue;
        throw DataError(fmt::format(
            "{}: the folders {} and {} look like images and their masks, but the names do not agree: {} and {}. "
            "Expected one mask an image, of the same name but for what data.masks.suffix, prefix, image_suffix and "
            "image_prefix say{}",
            place.string(), printable(images), printable(masks), printable(of_images[0]), printable(of_masks[0]),
            is_of_label_studio(of_masks[0])
                ? ". Label Studio numbers masks by tasks and writes one a label: its JSON says which "
                  "image a task has; rename them so, or export from it as COCO into a tool that writes "
                  "masks (CVAT)"
                : ""));
      }
  }
}

MaskSurvey survey_masks(const SampleReader& reader, const std::vector<ListedClass>& listed) {
  constexpr std::int64_t kMostFiles = 1000;
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  MaskSurvey survey;
  const DatasetFacts facts = reader.facts();
  const std::int64_t files = std::min(facts.size, kMostFiles);
  std::vector<std::vector<std::byte>> fields(facts.fields().size());
  StoredMask mask;
  std::size_t bytes = 0;
  for (std::int64_t i = 0; i < files && bytes < kMostBytes; ++i) {
    try {
      reader.fetch(i * facts.size / files, fields);
      bytes += fields.at(1).size();
      decode_stored_mask(fields[1], mask);
    } catch (const DataError&) {  // the survey of the samples counts and names it
      continue;
    }
    ++survey.files;
    survey.is_lossy = survey.is_lossy || mask.is_lossy;
    for (std::size_t c = 0; c < std::min(listed.size(), mask.palette.size()); ++c)
      if (listed[c].value && listed[c].value->is_colour && listed[c].value->rgb != mask.palette[c])
        survey.has_other_palette = true;
    std::map<std::uint32_t, std::int64_t> counts;
    std::uint32_t last = 0;
    std::int64_t* of_last = nullptr;
    for (std::size_t p = 0; p < mask.count(); ++p) {
      const std::uint8_t* rgb = mask.is_colour ? &mask.pixels[3 * p] : nullptr;
      const std::uint32_t value = mask.is_colour ? static_cast<std::uint32_t>(rgb[0] << 16 | rgb[1] << 8 | rgb[2])
                                                 : std::uint32_t{mask.numbers[p]};
      if (of_last == nullptr || value != last) of_last = &counts[last = value];
      ++*of_last;
    }
    for (const auto& [value, count] : counts) {
      const auto byte = [&](int shift) { return static_cast<std::uint8_t>(value >> shift); };
      const bool by_palette = survey.has_other_palette && value < mask.palette.size();
      survey.pixels[mask.is_colour ? MaskValue::of_colour({byte(16), byte(8), byte(0)})
                    : by_palette   ? MaskValue::of_colour(mask.palette[value])
                                   : MaskValue::of_number(value)] += count;
    }
  }
  return survey;
}

namespace {

/// Numbers and colours of one survey as colours, where it has any.
MaskSurvey in_colours(const MaskSurvey& survey) {
  MaskSurvey colours = survey;
  colours.pixels.clear();
  for (const auto& [value, count] : survey.pixels) {
    const auto grey = static_cast<std::uint8_t>(std::min<std::int64_t>(value.number, 255));
    colours.pixels[value.is_colour ? value : MaskValue::of_colour({grey, grey, grey})] += count;
  }
  return colours;
}

constexpr std::array<std::uint8_t, 3> kVocBorder = {224, 224, 192};

/// Values that soft edges and lossy files lie around: the frequent ones that are far from more frequent ones.
std::vector<MaskValue> peaks_of(const MaskSurvey& survey) {
  constexpr double kShare = 0.005;
  constexpr int kNear = 40;
  std::vector<std::pair<std::int64_t, MaskValue>> order;
  std::int64_t all = 0;
  for (const auto& [value, count] : survey.pixels) {
    order.emplace_back(-count, value);
    all += count;
  }
  std::ranges::sort(order);
  const auto distance = [](const MaskValue& a, const MaskValue& b) {
    if (!a.is_colour) return std::abs(a.number - b.number);
    std::int64_t most = 0;
    for (std::size_t c = 0; c < 3; ++c) most = std::max<std::int64_t>(most, std::abs(a.rgb[c] - b.rgb[c]));
    return most;
  };
  std::vector<MaskValue> peaks;
  for (const auto& [count, value] : order)
    if (static_cast<double>(-count) >= kShare * static_cast<double>(all) &&
        std::ranges::none_of(peaks, [&, v = value](const MaskValue& peak) { return distance(peak, v) < kNear; }))
      peaks.push_back(value);
  std::ranges::sort(peaks);
  return peaks;
}

std::vector<std::pair<MaskValue, std::string>> named(const std::vector<MaskValue>& values,
                                                     const std::vector<ListedClass>& listed) {
  std::vector<std::pair<MaskValue, std::string>> pairs;
  const bool two = values.size() == 2 && listed.empty();
  for (std::size_t c = 0; c < values.size(); ++c) {
    std::string name = two ? (c == 0 ? "background" : "object") : fmt::format("class_{}", c);
    if (listed.size() == values.size()) name = listed[c].name;
    if (values.size() == 2 && listed.size() == 1) name = c == 0 ? "background" : listed[0].name;
    pairs.emplace_back(values[c], std::move(name));
  }
  return pairs;
}

/// The file of classes says their values.
std::optional<MaskChoice> choose_listed(const MaskSurvey& survey, const std::vector<ListedClass>& listed) {
  if (listed.empty() || !std::ranges::all_of(listed, [](const ListedClass& one) { return one.value.has_value(); }))
    return std::nullopt;
  const bool of_colours = listed.front().value->is_colour;
  const bool has_colours = std::ranges::any_of(survey.pixels, [](const auto& value) { return value.first.is_colour; });
  if (of_colours != has_colours) return std::nullopt;
  const MaskSurvey found = of_colours ? in_colours(survey) : survey;
  MaskChoice choice;
  for (const ListedClass& one : listed) choice.values.emplace_back(*one.value, one.name);
  std::vector<MaskValue> others;
  for (const auto& [value, count] : found.pixels)
    if (std::ranges::find(choice.values, value, &std::pair<MaskValue, std::string>::first) == choice.values.end())
      others.push_back(value);
  const bool is_border =
      others.size() == 1 && (others[0] == MaskValue::of_colour(kVocBorder) || others[0] == MaskValue::of_number(255));
  if (is_border) choice.ignored = others[0];
  choice.nearest = !is_border && !others.empty();
  bool in_order = !of_colours;
  for (std::size_t c = 0; c < listed.size(); ++c)
    in_order = in_order && listed[c].value == MaskValue::of_number(static_cast<std::int64_t>(c));
  if (in_order && !choice.nearest) {
    for (const ListedClass& one : listed) choice.classes.push_back(one.name);
    choice.values.clear();
  }
  return choice;
}

MaskChoice choose_colours(const MaskSurvey& survey, const std::vector<ListedClass>& listed) {
  constexpr std::size_t kMostColours = 64;
  MaskSurvey colours = in_colours(survey);
  MaskChoice choice;
  std::vector<MaskValue> values;
  if (colours.pixels.size() <= kMostColours && !survey.is_lossy) {
    if (colours.pixels.erase(MaskValue::of_colour(kVocBorder)) > 0) choice.ignored = MaskValue::of_colour(kVocBorder);
    for (const auto& [value, count] : colours.pixels) values.push_back(value);
  } else {
    values = peaks_of(colours);
    choice.nearest = true;
  }
  choice.values = named(values, listed);
  return choice;
}

MaskChoice choose_numbers(const MaskSurvey& survey, const std::vector<ListedClass>& listed) {
  constexpr std::int64_t kFewClasses = 40;
  constexpr std::size_t kSoft = 48;
  std::vector<MaskValue> values;
  for (const auto& [value, count] : survey.pixels) values.push_back(value);
  MaskChoice choice;
  const std::int64_t least = values.front().number;
  const bool has_255 = values.back().number == 255 && values.size() > 1;
  const std::int64_t most = values[values.size() - (has_255 ? 2 : 1)].number;
  const auto distinct = std::ssize(values) - (has_255 ? 1 : 0);
  const auto in_use = static_cast<std::int64_t>(listed.size());
  if (survey.is_lossy || values.size() > kSoft) {
    const std::vector<MaskValue> peaks = peaks_of(survey);
    const bool few = peaks.size() > 1 && peaks.size() <= 20;
    if (few && (survey.is_lossy || most > kFewClasses)) {
      choice.values = named(peaks, listed);
      choice.nearest = true;
      return choice;
    }
  }
  if (values.size() == 1 && values[0].number == 255) values = {MaskValue::of_number(0), values[0]};
  if (values.size() == 2 && values[0].number == 0 && values[1].number == 255) {
    choice.values = named(values, listed);
    return choice;
  }
  const bool is_dense = most <= kFewClasses || most < in_use || 2 * distinct > most;
  if (!is_dense) {
    choice.values = named(values, listed);
    return choice;
  }
  if (has_255) choice.ignored = MaskValue::of_number(255);
  if (least > 0 && survey.files > 0 && (in_use == 0 || in_use == most)) {
    std::vector<MaskValue> from_one;
    for (std::int64_t number = 1; number <= most; ++number) from_one.push_back(MaskValue::of_number(number));
    choice.values = named(from_one, listed);
    return choice;
  }
  choice.count = std::max<std::int64_t>(most + 1, 2);
  if (in_use >= choice.count)
    for (const ListedClass& one : listed) choice.classes.push_back(one.name);
  return choice;
}

}  // namespace

MaskChoice choose_masks(const MaskSurvey& survey, const std::vector<ListedClass>& listed) {
  constexpr std::int64_t kMostClasses = 255;
  if (survey.pixels.empty()) throw DataError("none of the masks can be read");
  if (std::optional<MaskChoice> choice = choose_listed(survey, listed)) return *choice;
  const bool has_colours = std::ranges::any_of(survey.pixels, [](const auto& value) { return value.first.is_colour; });
  MaskChoice choice = has_colours ? choose_colours(survey, listed) : choose_numbers(survey, listed);
  const std::int64_t classes = choice.count + std::ssize(choice.values);
  if (classes == 0 || classes > kMostClasses)
    throw DataError(
        fmt::format("the masks have {} values, up to {}: they are no numbers or colours of at most {} classes. Where "
                    "they number things one by one, one class is all but the background: data.classes: [background, "
                    "thing], data.masks: {{values: {{0: background}}, others: thing}}",
                    survey.pixels.size(), to_string(survey.pixels.rbegin()->first), kMostClasses));
  return choice;
}

std::vector<std::string> mask_keys(const MaskChoice& choice, const std::vector<std::string>& place) {
  constexpr std::size_t kFew = 4;
  std::vector<std::string> keys, of_masks = place;
  if (!choice.values.empty()) {
    std::vector<std::string> values;
    for (const auto& [value, name] : choice.values) values.push_back(to_string(value) + ": " + yaml_text(name));
    if (values.size() <= kFew)
      of_masks.push_back(fmt::format("values: {{{}}}", fmt::join(values, ", ")));
    else
      of_masks.push_back(fmt::format("values:\n      {}", fmt::join(values, "\n      ")));
  }
  if (choice.nearest) of_masks.emplace_back("others: nearest   # of the values above");
  if (!of_masks.empty()) keys.push_back(fmt::format("masks:\n    {}", fmt::join(of_masks, "\n    ")));
  if (!choice.classes.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : choice.classes) names.push_back(yaml_text(name));
    keys.push_back(fmt::format("classes: [{}]", fmt::join(names, ", ")));
  } else if (choice.values.empty()) {
    keys.push_back(fmt::format("classes: {}", choice.count));
  }
  if (choice.ignored) keys.push_back("ignore: " + to_string(*choice.ignored));
  return keys;
}

}  // namespace bantam::run
