// Package verbs holds the verbs of RoboCache: one function per verb, with its request and its
// result. The command line binds flags to a request; the C library, which Python calls, decodes one
// with Decode.
//
// # Contract
//
//	verbs.C1  A request names its options by JSON tags. A tag is the flag's name with _ for -, and
//	          Python's keyword.
//	verbs.C2  The zero value of an option is its default. A pointer is nil if the option was not
//	          given.
//	verbs.C3  A result marshals to the JSON that the command line prints with --json.
//	verbs.C4  A result that implements Verdict reports whether the verb found something wrong.
//	          Findings are no error.
//	verbs.C5  A verb writes nothing to the streams of the process: it reports to its Observer.
//	verbs.C6  Decode rejects unknown options and values of a wrong type with class misuse.
//
// A request can thus be filled by a person in Go, by flags, or by keywords of Python, and the verb
// neither knows nor cares which it was.
package verbs
