// Package selftest says which back ends are here, proves that each gives the right answers, and
// says why others are absent.
//
// # Contract
//
//	T1  A back end that is present and wrong makes Run's result not OK; one that is absent does not.
//	T2  Nothing is read but what is embedded: it runs on a machine without data.
package selftest

//go:generate ./make_clips.sh
