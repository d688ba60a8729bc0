// Names: numbers for names, in the order of their first use, for columns of a page's JSON.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace bantam::cli {

class Names {
 public:
  std::size_t operator()(const std::string& name) {
    const auto [place, fresh] = places_.try_emplace(name, names_.size());
    if (fresh) names_.push_back(name);
    return place->second;
  }
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<std::string> names_;
};

}  // namespace bantam::cli
