package robocache

import "strings"

// Advice returns the hint of the finding, or what a user can do about findings of its code. It is
// empty if there is nothing to do, or if the message ends with the hint of an error.
func (f *Finding) Advice() string {
	switch advice := adviceByCode[f.Code]; {
	case f.Hint != "" || strings.Contains(f.Message, "; hint: "):
		return f.Hint
	case advice != nil:
		return advice()
	}
	return ""
}

// adviceByCode maps the code of a finding without a hint to a hint. Findings with other codes have
// no remedy beyond their message.
var adviceByCode = map[string]func() string{
	"unreadable-timestamps": fetchAgain,
	"unreadable-rows":       fetchAgain,
	"unreadable-episode":    fetchAgain,
	"unreadable-recording":  fetchAgain,
	"unreadable-split":      fetchAgain,
	"unreadable-stream":     fetchAgain,
	"unreadable-image":      fetchAgain,
	"unreadable-video":      fetchAgain,
	"malformed-message":     fetchAgain,
	"lost-messages":         fetchAgain,
	"bad-values":            fetchAgain,
	"bad-image":             fetchAgain,
	"missing-image":         skipEpisodes,
	"empty-episode":         skipEpisodes,
	"episode-skipped":       examineSource,
	"episode-left-out":      examineSource,
	"episode-not-aligned":   examineSource,
	"non-finite-values":     examineSource,
	"timestamps-go-back":    sortRows,
	"timestamps-backwards":  sortRows,
	"more-findings": func() string {
		return "Examine some episodes at a time with " + Option("episodes")
	},
	"no-video-decoder": fixedAdvice("Build with cgo and the FFmpeg libraries: make native"),
	"split-at-gaps": func() string {
		return "Keep and mask the rows with " + Option("split_at_gaps", false)
	},
	"rows-dropped": func() string {
		return "Leave " + Option("drop_invalid") + " out to keep and mask the rows"
	},
	"objects-skipped":    fixedAdvice("Store numbers or text in place of Python objects"),
	"window-outside-run": fixedAdvice("Correct the frame numbers of the annotation"),
	"runs-overlap":       fixedAdvice("Correct the frame numbers of the runs"),
	"duplicate-timestamps": func() string {
		return "Give all scans one rate with " + Option("rows_hz")
	},
	"column-left-out": fixedAdvice("Store numbers, text or lists of one length"),
	"stream-dropped":  otherFormat,
	"mask-lost":       otherFormat,
	"tasks-lost":      otherFormat,
	"split-not-kept": func() string {
		return "Convert each split alone with " + Option("split")
	},
	"clock-steps-back": func() string {
		return "Take the recorder's time with " + Option("options", "clock", "log")
	},
	"topic-type-differs":  fixedAdvice("Open recordings with different types of a topic apart"),
	"schema-does-not-fit": fixedAdvice("Record the topic with its complete definition"),
	"image-changed": func() string {
		return "Read the images at one size with " + Option("image_size")
	},
	"joint-unknown":   fixedAdvice("Record all joints from the first message on"),
	"too-many-frames": fixedAdvice("Record fewer pairs of frames in one topic"),
	"no-stream": fixedAdvice(
		"Store an array with a row for each step if it is a stream",
	),
	"unknown-key":         fixedAdvice("Correct the key if it is misspelt"),
	"unknown-features":    fixedAdvice("Declare the features to have them read"),
	"unsupported-feature": fixedAdvice("Write the feature as a tensor or text"),
	"odd-flags": fixedAdvice(
		"Correct the flags for readers that split episodes by them",
	),
	"duplicate-demo":     fixedAdvice("Give each demo a number of its own"),
	"env-args-malformed": fixedAdvice("Write env_args as JSON"),
	"key-twice":          fixedAdvice("Rename one of them"),
	"codec-unsupported":  fixedAdvice("Write the data again with a codec that is read"),
	"coarse-timestamps":  fixedAdvice("Write timestamps as float64"),
	"video-order": func() string {
		return Command("convert") + " writes the episodes in " +
			"order"
	},
	"no-image-statistics": func() string {
		return "Count frames with " + Option("frames", "sampled")
	},
}

func fixedAdvice(text string) func() string { return func() string { return text } }

func fetchAgain() string {
	return "Fetch the file again, or leave the episode out with " + SkipBadEpisodes()
}

func skipEpisodes() string { return "Leave such episodes out with " + SkipBadEpisodes() }

func examineSource() string {
	return "Run " + Command("doctor") + " on the source to see what is wrong"
}

func sortRows() string {
	return "Write the rows again in the order of their times, or leave the episode out with " +
		SkipBadEpisodes()
}

func otherFormat() string {
	return "Convert to a format that keeps it, such as " + Option("to", "lerobot")
}
