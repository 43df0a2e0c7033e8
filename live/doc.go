// Package live gives a running robot the observations that its policy was trained on.
//
// A Live is made from a contract (loader.Loader.Contract). Messages or decoded values are pushed as
// they arrive, and Observe returns the observation of a tick. It has no implementation of decoding,
// resizing, interpolation or normalization: it keeps the newest samples of each stream, and a
// loader.Observer builds the observation from them by the plan of a Loader.
//
// # Contract
//
//	live.V1  An observation at tick t depends only on samples that arrived at or before t. It equals
//	         the sample of a causal Loader at that tick, bit for bit, if the same samples were
//	         recorded.
//	live.V2  A row without a sample that is young enough is marked by `<key>_is_pad`, or is an error,
//	         as the contract's stale says. No value is held longer than max_age.
//	live.V3  Push never waits for an observation or for another stream. If a stream exceeds its
//	         budget, its oldest samples are dropped and counted.
//	live.V4  A sample that arrives late or twice takes its place by its timestamp. If timestamps step
//	         back for good (a restarted publisher, a clock that was set), the samples from after the
//	         step are forgotten, and the step is counted.
//	live.V5  A value that does not fit the contract (type, size, encoding, numbers that are not
//	         finite, a timestamp far from its arrival) is a typed error. It is counted and changes no
//	         observation.
//	live.V6  Memory is bounded by Config.MemoryBudget. A tick allocates nothing after the first ones,
//	         except for streams of varying length.
package live
