// Who begins, and what is sent.
#include "bantam/run/ranks/algorithm_rounds.h"

#include <algorithm>
#include <vector>

#include "bantam/base/json.h"
#include "bantam/engine/comm/collectives.h"

namespace bantam::run {
namespace {

std::string text_of(const std::map<std::string, std::string>& choices) {
  return nlohmann::ordered_json(choices).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void warm_up_in_rounds(const RunRanks& ranks, const RoundMember& member, const RoundChoices& choices,
                       const std::function<void()>& warm_up) {
  const auto timed = [&] {
    choices.set_timing(member.may_time);
    warm_up();
    choices.set_timing(false);
  };
  choices.set_timing(false);
  if (!ranks.several()) return timed();
  const std::vector<std::string> cards = all_gather_texts(*ranks.link, member.card);
  const std::vector<std::string> works = all_gather_texts(*ranks.link, member.card + "\n" + member.work);
  bool warm = false;
  for (std::size_t rank = 0; rank < works.size(); ++rank) {
    const bool first = std::find(works.begin(), works.begin() + static_cast<std::ptrdiff_t>(rank), works[rank]) ==
                       works.begin() + static_cast<std::ptrdiff_t>(rank);
    if (!first) continue;
    const bool mine = static_cast<int>(rank) == ranks.rank();
    if (mine) timed();
    warm = warm || mine;
    const std::string sent = broadcast_text(*ranks.link, mine ? text_of(choices.all()) : "", static_cast<int>(rank));
    if (!mine && cards[rank] == member.card)
      choices.add(nlohmann::ordered_json::parse(sent).get<std::map<std::string, std::string>>());
  }
  if (!warm) warm_up();
}

}  // namespace bantam::run
