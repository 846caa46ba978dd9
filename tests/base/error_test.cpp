#include "core/base/error.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(Error, ContextGoesInFront) {
  EXPECT_EQ(Error::with_context("while reading a.json", "no such key"),
            "while reading a.json: no such key");
}

TEST(Error, KindsAreToldApartByTheirType) {
  EXPECT_THROW(throw UserError("x"), Error);
  EXPECT_THROW(throw LogicError("x"), Error);
  try {
    throw LogicError("x");
  } catch (const UserError&) {
    FAIL() << "a bug was reported as the user's mistake";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "x");
  }
}

TEST(Error, RequireThrowsOnlyWhenBroken) {
  EXPECT_NO_THROW(require(true, "fine"));
  try {
    require(false, "slot 3 was read before it was filled");
    FAIL();
  } catch (const LogicError& error) {
    EXPECT_NE(std::string(error.what()).find("slot 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace megatrain
