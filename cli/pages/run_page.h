// The page of `bantam report`: one HTML file of one or several runs that needs no other.
#pragma once

#include <span>
#include <string>

#include "bantam/base/json.h"
#include "bantam/run/report/run_report.h"

namespace bantam::cli {

/// No page is larger: pictures become smaller, then are left out, and histograms after them.
inline constexpr std::size_t kMostPageBytes = 3'000'000;

struct RunPageOptions {
  int refresh_seconds = 0;   ///< the page is read again by the browser after so many; 0: never
  std::string version = {};  ///< of a page that follows its server (`data.json?seen=VERSION`); empty: it does not
};

/// Makes the JSON that the page's script reads, without pictures: `train --serve` sends it again and again. Without
/// `histograms` the page keeps those that it has.
nlohmann::ordered_json run_page_news(std::span<const run::RunReport> reports, const std::string& version,
                                     bool histograms);

std::string run_page(std::span<const run::RunReport> reports, const RunPageOptions& options = {});

/// The scripts of every such page, as a Content-Security-Policy names them: "'sha256-…' 'sha256-…'".
std::string run_page_script_hashes();

}  // namespace bantam::cli
