//! What is special to one provider's directory of people. What every directory does is in `testkit::contract::directory`.

mod google;
mod microsoft;
