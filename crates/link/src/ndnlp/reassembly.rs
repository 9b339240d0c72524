//! Packets of which some fragments are missing, bounded.
