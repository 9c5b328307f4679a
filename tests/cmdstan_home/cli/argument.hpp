#ifndef CMDSTAN_HOME_ARGUMENT_HPP
#define CMDSTAN_HOME_ARGUMENT_HPP

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace cmdstan_home {

/** Something is wrong with what the user typed. */
struct usage_error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/** Which numbers an argument takes. */
struct range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool ends = true;  // are the two ends themselves allowed?

  bool contains(double x) const;
  std::string describe() const;
};

/**
 * A node of the command line.
 *
 * A group holds members (`adapt engaged=1 delta=0.9`), a choice holds one group
 * for each alternative (`method=sample`, `algorithm=hmc`), and the others hold
 * a value (`num_samples=1000`).
 */
class argument {
 public:
  enum class kind { group, choice, flag, integer, real, text };

  static argument group(std::string name, std::vector<argument> members);
  static argument choice(std::string name, std::string standard,
                         std::vector<argument> alternatives);
  static argument flag(std::string name, bool standard);
  static argument integer(std::string name, long long standard, range allowed);
  static argument real(std::string name, double standard, range allowed);
  static argument text(std::string name, std::string standard);

  const std::string& name() const { return name_; }
  kind type() const { return type_; }
  bool given() const { return given_; }
  bool is_default() const { return value_ == standard_; }
  const std::vector<argument>& children() const { return children_; }

  /** The alternative of a choice that is in force. */
  const argument& chosen() const;

  /** A descendant by its path, such as `method.sample.adapt.delta`. */
  const argument& operator[](const std::string& path) const;
  argument& operator[](const std::string& path);

  const std::string& as_text() const { return value_; }
  bool as_flag() const { return value_ == "true"; }
  long long as_integer() const;
  double as_real() const;

  /** Check a value and store it; throws usage_error naming the argument. */
  void set(const std::string& value);

  argument* child(const std::string& name);

 private:
  argument(std::string name, kind type, std::string standard);

  std::string name_;
  kind type_;
  std::string value_;
  std::string standard_;
  range allowed_;
  bool given_ = false;
  std::vector<argument> children_;
};

/** Every argument that this program knows, at its default. */
argument command_line();

/**
 * Read the words of a command line into the tree.
 *
 * A word is looked up in the group that is open, then in the groups around it.
 * Anything unknown, repeated or out of range throws usage_error.
 */
void parse(argument& root, const std::vector<std::string>& words);

/** The tree as `name = value` lines, indented by depth, defaults marked. */
std::vector<std::string> describe(const argument& root);

}  // namespace cmdstan_home

#endif
