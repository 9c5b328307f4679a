#include "argument.hpp"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <utility>

namespace cmdstan_home {

namespace {

std::string plain(double x) {
  std::ostringstream out;
  out << std::setprecision(15) << x;
  return out.str();
}

bool read_number(const std::string& text, double& x) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])))
    return false;
  char* end = nullptr;
  errno = 0;
  x = std::strtod(text.c_str(), &end);
  // An underflow to a tiny number is a number; an overflow is not.
  return *end == '\0' && !std::isnan(x)
         && !(errno == ERANGE && std::abs(x) > 1);
}

bool read_integer(const std::string& text, long long& x) {
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])))
    return false;
  char* end = nullptr;
  errno = 0;
  x = std::strtoll(text.c_str(), &end, 10);
  return *end == '\0' && errno == 0;
}

void describe(const argument& node, int depth, std::vector<std::string>& out) {
  const std::string indent(2 * depth, ' ');
  if (node.type() == argument::kind::group) {
    out.push_back(indent + node.name());
    for (const auto& member : node.children())
      describe(member, depth + 1, out);
    return;
  }
  out.push_back(indent + node.name() + " = " + node.as_text()
                + (node.is_default() ? " (Default)" : ""));
  if (node.type() == argument::kind::choice && !node.chosen().children().empty())
    describe(node.chosen(), depth + 1, out);
}

}  // namespace

bool range::contains(double x) const {
  return ends ? low <= x && x <= high : low < x && x < high;
}

std::string range::describe() const {
  const bool below = std::isfinite(low), above = std::isfinite(high);
  if (below && above)
    return (ends ? "from " : "strictly between ") + plain(low)
           + (ends ? " to " : " and ") + plain(high);
  if (below)
    return (ends ? "at least " : "greater than ") + plain(low);
  if (above)
    return (ends ? "at most " : "less than ") + plain(high);
  return "any";
}

argument::argument(std::string name, kind type, std::string standard)
    : name_(std::move(name)),
      type_(type),
      value_(standard),
      standard_(std::move(standard)) {}

argument argument::group(std::string name, std::vector<argument> members) {
  argument made(std::move(name), kind::group, "");
  made.children_ = std::move(members);
  return made;
}

argument argument::choice(std::string name, std::string standard,
                          std::vector<argument> alternatives) {
  argument made(std::move(name), kind::choice, std::move(standard));
  made.children_ = std::move(alternatives);
  return made;
}

argument argument::flag(std::string name, bool standard) {
  return argument(std::move(name), kind::flag, standard ? "true" : "false");
}

argument argument::integer(std::string name, long long standard,
                           range allowed) {
  argument made(std::move(name), kind::integer, std::to_string(standard));
  made.allowed_ = allowed;
  return made;
}

argument argument::real(std::string name, double standard, range allowed) {
  argument made(std::move(name), kind::real, plain(standard));
  made.allowed_ = allowed;
  return made;
}

argument argument::text(std::string name, std::string standard) {
  return argument(std::move(name), kind::text, std::move(standard));
}

argument* argument::child(const std::string& name) {
  for (auto& one : children_)
    if (one.name_ == name)
      return &one;
  return nullptr;
}

argument& argument::operator[](const std::string& path) {
  argument* node = this;
  std::istringstream steps(path);
  for (std::string step; std::getline(steps, step, '.');) {
    node = node->child(step);
    if (node == nullptr)
      throw std::logic_error("the command line declares no " + path);
  }
  return *node;
}

const argument& argument::operator[](const std::string& path) const {
  return const_cast<argument&>(*this)[path];
}

const argument& argument::chosen() const { return (*this)[value_]; }

long long argument::as_integer() const {
  return std::strtoll(value_.c_str(), nullptr, 10);
}

double argument::as_real() const {
  return std::strtod(value_.c_str(), nullptr);
}

void argument::set(const std::string& value) {
  const std::string typed = name_ + "=" + value;
  if (given_)
    throw usage_error("argument '" + name_ + "' is given twice");
  double x = 0;
  long long n = 0;
  switch (type_) {
    case kind::group:
      throw usage_error("'" + name_ + "' takes arguments, not a value: " + typed);
    case kind::choice:
      if (child(value) == nullptr) {
        std::string names;
        for (const auto& one : children_)
          names += (names.empty() ? "" : ", ") + one.name_;
        throw usage_error("argument '" + typed + "' is not one of: " + names);
      }
      value_ = value;
      break;
    case kind::flag:
      if (value != "0" && value != "1" && value != "true" && value != "false")
        throw usage_error("argument '" + typed + "' must be 0 or 1");
      value_ = value == "1" || value == "true" ? "true" : "false";
      break;
    case kind::integer:
      if (!read_integer(value, n) || !allowed_.contains(n))
        throw usage_error("argument '" + typed + "' must be an integer, "
                          + allowed_.describe());
      value_ = std::to_string(n);
      break;
    case kind::real:
      if (!read_number(value, x) || !allowed_.contains(x))
        throw usage_error("argument '" + typed + "' must be a number, "
                          + allowed_.describe());
      value_ = value;
      break;
    case kind::text:
      value_ = value;
      break;
  }
  given_ = true;
}

void parse(argument& root, const std::vector<std::string>& words) {
  std::vector<argument*> open{&root};
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    argument* found = nullptr;
    std::string where;
    while (true) {
      argument& here = *open.back();
      found = here.child(name);
      if (found != nullptr || open.size() == 1)
        break;
      where += (where.empty() ? " in " : ", ") + here.name();
      open.pop_back();
    }
    // A method's bare name stands for method=name.
    argument& method = root["method"];
    if (found == nullptr && equals == std::string::npos
        && method.child(name) != nullptr) {
      method.set(name);
      open.push_back(method.child(name));
      continue;
    }
    if (found == nullptr)
      throw usage_error("unknown argument '" + word + "'"
                        + (where.empty() ? "" : where + " or at the top level"));
    if (found->type() == argument::kind::group) {
      if (equals != std::string::npos)
        found->set(word.substr(equals + 1));  // throws
      open.push_back(found);
      continue;
    }
    if (equals == std::string::npos)
      throw usage_error("argument '" + name + "' needs a value: " + name + "=...");
    found->set(word.substr(equals + 1));
    if (found->type() == argument::kind::choice)
      open.push_back(found->child(found->as_text()));
  }
}

std::vector<std::string> describe(const argument& root) {
  std::vector<std::string> out;
  for (const auto& child : root.children())
    describe(child, 0, out);
  return out;
}

}  // namespace cmdstan_home
