//! What becomes of a packet.
