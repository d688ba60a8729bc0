// Tables, bars of class counts, and pictures.
#include "bantam/cli/data/data_page.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"
#include "bantam/data/images/encode.h"

namespace bantam::cli {
namespace {

constexpr std::int64_t kMostPixels = 160;  // of a picture's longer side

std::string picture(const Image& image, std::string_view words) {
  if (image.pixels.empty()) return {};
  const bool small = std::max(image.size.height, image.size.width) < kMostPixels / 2;
  return fmt::format("<img{} alt=\"{}\" src=\"data:image/png;base64,{}\">", small ? " class=\"small\"" : "",
                     escaped(words), base64(encode_png(reduced(image, kMostPixels))));
}

/// One picture of a sample: its mask below it, then what it is, then its target or size.
std::string view_figure(const std::string& title, const SampleView& view, const std::string& sample) {
  return fmt::format("<figure>{}{}<figcaption>{}</figcaption><span>{}</span></figure>\n",
                     picture(view.image, fmt::format("{}, {}", sample, title)),
                     picture(view.mask, fmt::format("{}, {}: its mask, a colour a class", sample, title)), title,
                     escaped(view.target));
}

/// A target is written where training makes another one of it (mixup).
SampleView without_target(SampleView view, const std::string& known) {
  if (view.target == known) view.target.clear();
  return view;
}

std::string sample_text(const PageSample& sample) {
  const ImageSize size = sample.stored.size;
  const SampleView stored{
      .image = sample.stored,
      .mask = {},
      .target = sample.stored.pixels.empty() ? "" : fmt::format("{} x {}", size.width, size.height)};
  std::string text = fmt::format("<div class=\"sample\"><h3>{}</h3><div class=\"views\">\n", escaped(sample.name));
  if (!stored.image.pixels.empty()) text += view_figure("stored", stored, sample.name);
  for (std::size_t e = 0; e < sample.training.size(); ++e)
    text += view_figure(fmt::format("epoch {}", e + 1), without_target(sample.training[e], sample.evaluation.target),
                        sample.name);
  return text + view_figure("evaluation", sample.evaluation, sample.name) + "</div></div>\n";
}

std::string samples_text(const std::vector<PageSample>& samples) {
  if (samples.empty())
    return "<p class=\"hint\">There is no batch to show: the pipeline has no stage that makes images of one size.</p>";
  std::string text = fmt::format(
      "<p class=\"hint\">{} training samples, as many of each class as there can be: as stored, in {} epochs of "
      "training, and in an evaluation. The normalisation is undone.</p>\n",
      samples.size(), samples.front().training.size());
  for (const PageSample& sample : samples) text += sample_text(sample);
  return text;
}

/// Classes [first, last) as rows; bars are of the training samples, the longest `most` of them.
std::string class_rows(const DataReport& report, std::size_t first, std::size_t last, std::int64_t most) {
  const SplitSurvey& train = report.splits.front().survey;
  std::string text;
  for (std::size_t c = first; c < last; ++c) {
    const bool named = c < train.facts.class_names.size();
    text += fmt::format("<tr><td>{}</td>", named ? escaped(train.facts.class_names[c]) : fmt::format("{}", c));
    for (const DataReport::Split& split : report.splits) {
      const auto& counts = split.survey.class_counts;
      text += fmt::format("<td>{}</td>", format_count(c < counts.size() ? counts[c] : 0));
    }
    text += fmt::format("<td class=\"bars\"><i style=\"width:{:.1f}%\"></i></td></tr>\n",
                        100.0 * static_cast<double>(train.class_counts[c]) / static_cast<double>(most));
  }
  return text;
}

std::string classes_table(const DataReport& report) {
  constexpr std::size_t kShown = 24;
  const std::vector<std::int64_t>& counts = report.splits.front().survey.class_counts;
  if (counts.empty()) return "<p class=\"hint\">The targets are no classes.</p>";
  const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(counts));
  std::string head = "<table class=\"classes\"><thead><tr><th scope=\"col\">class</th>";
  for (const DataReport::Split& split : report.splits) head += fmt::format("<th scope=\"col\">{}</th>", split.name);
  head += fmt::format(
      "<th scope=\"col\" class=\"bars\" aria-label=\"training samples as bars from 0 to {0}\"><span><b>0</b><b>{0}</b>"
      "</span></th></tr></thead>\n<tbody>",
      format_count(most));
  const std::string end = "</tbody></table>";
  const std::size_t first = std::min(kShown, counts.size());
  std::string text = head + class_rows(report, 0, first, most) + end;
  if (first < counts.size())
    text += fmt::format("\n<details><summary>{} more classes</summary>{}{}{}</details>", counts.size() - first, head,
                        class_rows(report, first, counts.size(), most), end);
  return text;
}

std::string tile(const std::string& value, const std::string& label, const std::string& note) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span><span>{}</span></div>", escaped(value),
                     escaped(label), escaped(note));
}

std::string tiles_text(const DataReport& report) {
  std::string text;
  for (const DataReport::Split& split : report.splits)
    text += tile(format_count(split.survey.facts.size), split.name + " samples",
                 format_byte_size(split.survey.stored_bytes));
  const SplitSurvey& train = report.splits.front().survey;
  if (!train.class_counts.empty())
    text += tile(format_count(std::ssize(train.class_counts)), "classes",
                 train.imbalance() < 1.5
                     ? "about as many samples each"
                     : fmt::format("the largest has {:.3g} x the samples of the smallest", train.imbalance()));
  const Shape& shape = train.facts.image_shape;
  const ImageSize size = shape.rank() != 3                  ? ImageSize{}
                         : train.facts.has_encoded_images() ? train.median
                                                            : ImageSize{shape[0], shape[1]};
  if (size.height > 0)
    text += tile(fmt::format("{} x {}", size.width, size.height), "pixels",
                 train.facts.has_encoded_images() ? "median of the images' sizes" : "every image");
  return text;
}

}  // namespace

std::string data_page(const DataReport& report, const std::vector<PageSample>& samples) {
  return filled(page_part("data_page.html"), {{"name", escaped(report.config)},
                                              {"format", escaped(report.format)},
                                              {"style", page_part("data_page.css")},
                                              {"theme", page_part("theme.js")},
                                              {"tiles", tiles_text(report)},
                                              {"summary", escaped(text_of(report))},
                                              {"classes", classes_table(report)},
                                              {"samples", samples_text(samples)},
                                              {"made", utc_text(static_cast<std::int64_t>(std::time(nullptr)))}});
}

}  // namespace bantam::cli
