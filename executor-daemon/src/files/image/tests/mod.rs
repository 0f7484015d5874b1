//! Images by value and through the fence.
