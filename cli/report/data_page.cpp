// Tables, bars of class counts, and pictures.
#include "bantam/cli/report/data_page.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/text.h"
#include "bantam/cli/report/page_text.h"
#include "bantam/data/images/encode.h"

namespace bantam::cli {
namespace {

constexpr std::int64_t kMostPixels = 160;  // of a picture's longer side

constexpr const char* kPage = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>data: {name}</title>
<style>:root{{color-scheme:light dark}}body{{font:15px system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em}}
table{{border-collapse:collapse;margin:1em 0}}td,th{{padding:.2em .8em;text-align:right;vertical-align:top}}
td:first-child,th:first-child{{text-align:left}}td.sample{{text-align:center;font-size:12px;max-width:170px;overflow-wrap:anywhere}}
img{{display:block;margin:0 auto;max-width:160px;min-width:96px;image-rendering:auto}}img.small{{image-rendering:pixelated}}
.bar{{display:inline-block;height:.8em;background:#1565c0}}pre{{white-space:pre-wrap}}</style></head><body>
<h1>Data of {name}</h1>
<pre>{summary}</pre>
<h2>Classes</h2>
{classes}
<h2>Samples as the network sees them</h2>
<p>A row a training sample: as stored, in {epochs} epochs of training, and in an evaluation. The normalisation is undone.</p>
{samples}
</body></html>
)";

std::string picture(const Image& image) {
  if (image.pixels.empty()) return {};
  const bool small = std::max(image.size.height, image.size.width) < kMostPixels / 2;
  return fmt::format("<img{} alt=\"\" src=\"data:image/png;base64,{}\">", small ? " class=\"small\"" : "",
                     base64(encode_png(reduced(image, kMostPixels))));
}

std::string cell(const SampleView& view) {
  return fmt::format("<td class=\"sample\">{}{}{}</td>", picture(view.image), picture(view.mask), escaped(view.target));
}

std::string samples_table(const std::vector<PageSample>& samples) {
  if (samples.empty()) return {};
  std::string text = "<table><tr><th>sample</th><th>stored</th>";
  for (std::size_t e = 0; e < samples.front().training.size(); ++e) text += fmt::format("<th>epoch {}</th>", e + 1);
  text += "<th>evaluation</th></tr>\n";
  for (const PageSample& sample : samples) {
    text += fmt::format(
        "<tr><td class=\"sample\">{}</td><td class=\"sample\">{}{}</td>", escaped(sample.name), picture(sample.stored),
        sample.stored.pixels.empty() ? ""
                                     : fmt::format("{} x {}", sample.stored.size.width, sample.stored.size.height));
    for (const SampleView& view : sample.training) text += cell(view);
    text += cell(sample.evaluation) + "</tr>\n";
  }
  return text + "</table>";
}

std::string classes_table(const DataReport& report) {
  const SplitSurvey& train = report.splits.front().survey;
  if (train.class_counts.empty()) return "<p>The targets are no classes.</p>";
  const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(train.class_counts));
  std::string text = "<table><tr><th>class</th>";
  for (const DataReport::Split& split : report.splits) text += fmt::format("<th>{}</th>", split.name);
  text += "<th></th></tr>\n";
  for (std::size_t c = 0; c < train.class_counts.size(); ++c) {
    const bool named = c < train.facts.class_names.size();
    text += fmt::format("<tr><td>{}</td>", named ? escaped(train.facts.class_names[c]) : fmt::format("{}", c));
    for (const DataReport::Split& split : report.splits) {
      const auto& counts = split.survey.class_counts;
      text += fmt::format("<td>{}</td>", format_count(c < counts.size() ? counts[c] : 0));
    }
    text +=
        fmt::format("<td style=\"text-align:left\"><span class=\"bar\" style=\"width:{:.1f}em\"></span></td></tr>\n",
                    30.0 * static_cast<double>(train.class_counts[c]) / static_cast<double>(most));
  }
  return text + "</table>";
}

}  // namespace

std::string data_page(const DataReport& report, const std::vector<PageSample>& samples) {
  return fmt::format(kPage, fmt::arg("name", escaped(report.config)), fmt::arg("summary", escaped(text_of(report))),
                     fmt::arg("classes", classes_table(report)),
                     fmt::arg("epochs", samples.empty() ? 0 : samples.front().training.size()),
                     fmt::arg("samples", samples_table(samples)));
}

}  // namespace bantam::cli
