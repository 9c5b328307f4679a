#ifndef CMDSTAN_HOME_FILES_HPP
#define CMDSTAN_HOME_FILES_HPP

#include <stan/model/model_header.hpp>

#include <stan/callbacks/json_writer.hpp>
#include <stan/callbacks/unique_stream_writer.hpp>

#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "argument.hpp"

namespace cmdstan_home {

/** A file is missing, unreadable or does not hold what it should. */
struct file_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using csv_writer = stan::callbacks::unique_stream_writer<std::ofstream>;
using json_writer = stan::callbacks::json_writer<std::ofstream>;
using context = std::shared_ptr<const stan::io::var_context>;

/** `dir/out.csv` with tag `_2` is `dir/out_2.csv`, or another suffix. */
std::string tagged(const std::string& path, const std::string& tag);
std::string tagged(const std::string& path, const std::string& tag,
                   const std::string& suffix);

/** Values by name from a JSON file; none if `path` is empty. */
context read_values(const std::string& path);

/**
 * One set of values for each of `count` chains.
 *
 * `path` is a list of files separated by commas, or one file. One file that has
 * a sibling for the first chain (`init_1.json` beside `init.json`) stands for
 * the siblings, numbered from `first`; otherwise it serves every chain.
 */
std::vector<context> read_values(const std::string& path, int count,
                                 int first);

/** Parameters by draw, on the scale of the program: a row for each draw. */
Eigen::MatrixXd read_draws(const std::string& path,
                           const stan::model::model_base& model);

/** The lines of `describe` and the versions, as a Stan CSV file begins. */
std::vector<std::string> preamble(const argument& arguments,
                                  const stan::model::model_base& model);

/** A Stan CSV file that begins with `lines`; no file if `path` is empty. */
csv_writer open_csv(const std::string& path, const argument& arguments,
                    const std::vector<std::string>& lines);

/** A JSON file to write to. */
json_writer open_json(const std::string& path, const argument& arguments);

/** The whole command line as `<output>_config.json`. */
void write_config(const argument& arguments,
                  const stan::model::model_base& model);

/** Times of the program's `profile` blocks; no file if it has none. */
void write_profile(const std::string& path,
                   const stan::math::profile_map& profiles);

}  // namespace cmdstan_home

#endif
