//! When the forwarder itself marks packets: its own queue is the bottleneck.
