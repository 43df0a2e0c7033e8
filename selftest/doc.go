// Package selftest lists the back ends of this machine. It checks that each one gives correct
// results, and reports why others are missing.
//
// # Contract
//
//	selftest.T1  OK returns false if a back end is present and wrong. A missing back end does not
//	             matter.
//	selftest.T2  Only embedded data is read, so the test runs on a machine without datasets.
package selftest

//go:generate ./make_clips.sh
