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

// adviceByCode are the hints of findings that bring none, by code. A code that is not here has no
// remedy beyond what its message says.
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
	"more-findings":         func() string { return "Examine some episodes at a time with " + Option("episodes") },
	"no-video-decoder":      fixed("Build with cgo and the FFmpeg libraries: make native"),
	"split-at-gaps":         func() string { return "Keep and mask the rows with " + Option("split_at_gaps", false) },
	"rows-dropped":          func() string { return "Leave " + Option("drop_invalid") + " out to keep and mask the rows" },
	"objects-skipped":       fixed("Store numbers or text in place of Python objects"),
	"window-outside-run":    fixed("Correct the frame numbers of the annotation"),
	"runs-overlap":          fixed("Correct the frame numbers of the runs"),
	"duplicate-timestamps":  func() string { return "Give all scans one rate with " + Option("rows_hz") },
	"column-left-out":       fixed("Store numbers, text or lists of one length"),
	"stream-dropped":        otherFormat,
	"mask-lost":             otherFormat,
	"tasks-lost":            otherFormat,
	"split-not-kept":        func() string { return "Convert each split alone with " + Option("split") },
	"clock-steps-back":      func() string { return "Take the recorder's time with " + Option("options", "clock", "log") },
	"topic-type-differs":    fixed("Open recordings with different types of a topic apart"),
	"schema-does-not-fit":   fixed("Record the topic with its complete definition"),
	"image-changed":         func() string { return "Read the images at one size with " + Option("image_size") },
	"joint-unknown":         fixed("Record all joints from the first message on"),
	"too-many-frames":       fixed("Record fewer pairs of frames in one topic"),
	"no-stream":             fixed("Store an array with a row for each step if it is a stream"),
	"unknown-key":           fixed("Correct the key if it is misspelt"),
	"unknown-features":      fixed("Declare the features to have them read"),
	"unsupported-feature":   fixed("Write the feature as a tensor or text"),
	"odd-flags":             fixed("Correct the flags for readers that split episodes by them"),
	"duplicate-demo":        fixed("Give each demo a number of its own"),
	"env-args-malformed":    fixed("Write env_args as JSON"),
	"key-twice":             fixed("Rename one of them"),
	"codec-unsupported":     fixed("Write the data again with a codec that is read"),
	"coarse-timestamps":     fixed("Write timestamps as float64"),
	"video-order":           func() string { return Command("convert") + " writes the episodes in order" },
	"no-image-statistics":   func() string { return "Count frames with " + Option("frames", "sampled") },
}

func fixed(text string) func() string { return func() string { return text } }

func fetchAgain() string {
	return "Fetch the file again, or leave the episode out with " + SkipBadEpisodes()
}

func skipEpisodes() string { return "Leave such episodes out with " + SkipBadEpisodes() }

func examineSource() string {
	return "Run " + Command("doctor") + " on the source to see what is wrong"
}

func sortRows() string {
	return "Write the rows again in the order of their times, or leave the episode out with " + SkipBadEpisodes()
}

func otherFormat() string {
	return "Convert to a format that keeps it, such as " + Option("to", "lerobot")
}
