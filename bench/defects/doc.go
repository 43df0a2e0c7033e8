// Package defects measures how well RoboCache's quality metrics find defects that are planted into a
// synthetic dataset. It writes the set in several formats, measures each, and counts the planted
// episodes with a finding (recall) and the clean ones with a finding (false alarms).
//
// # Contract
//
//	defects.C1  A set is a pure function of its seed. All formats hold the same episodes.
//	defects.C2  A defect has a size: 2, 4 or 8 times the spread (standard deviation over the clean
//	            episodes) of the quantity that it changes, or 1, 3 or 10 frames. The quantity is
//	            computed here, without the code of package quality.
//	defects.C3  A defect is found if a metric that is meant for it has a finding for the episode.
//	            A clean episode with any finding is a false alarm.
//
// No detector can find more than Φ(k − 2.05) of the defects of k spreads with 2 % false alarms, if
// the quantity is normally distributed and nothing else changes: 48 % for 2, 97 % for 4, 100 % for 8.
// The report states this bound.
package defects
