//! Every strategy.
