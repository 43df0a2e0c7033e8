package robocache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Format describes a file format: its reader, and its writer if it has one. Format packages
// register it.
type Format struct {
	Name string
	// Detect reports whether the dataset at uri has this format. An error means that the dataset
	// could not be examined.
	Detect func(ctx context.Context, uri string, opt OpenOptions) (bool, error)
	Open   func(ctx context.Context, uri string, opt OpenOptions) (Dataset, error)
	// Write writes a dataset in this format. It is nil if the format has no writer.
	Write func(ctx context.Context, src Dataset, dst string, opt WriteOptions) (*WriteReport, error)
	// WriteOptions describes the keys of WriteOptions.Options that Write accepts.
	WriteOptions map[string]string
	// WriteAs names the format whose writer is used for this one, if this one is a container
	// without a layout of its own.
	WriteAs string
	// Default reports that this format is written if the user names none.
	Default bool
	// Sharding describes how a dataset is written in shards. It is nil if it cannot be.
	Sharding *Sharding
	// NeedsEpisodes reports that a dataset without episodes cannot be written in this format.
	NeedsEpisodes bool
	// Resumes reports that Write supports WriteOptions.Resume and DryRun.
	Resumes bool
	// StatsFile is the file in which a dataset stores its statistics as stats.Marshal writes them.
	// It is empty if the format stores none.
	StatsFile string
	// WholeDoctor reports that Diagnose of its datasets checks every timestamp, row and image. The
	// checks that are common to all formats are then omitted.
	WholeDoctor bool
	// Clocks reports that Write keeps streams with separate clocks. Other writers need one clock,
	// to which align.View aligns a dataset.
	Clocks bool
	// KeepsLacking reports that Write leaves a stream that an episode lacks (Capabilities.Lacks)
	// out of that episode. For other writers such an episode is malformed.
	KeepsLacking bool
	// Keeps reports whether Write can hold a stream, by its kind, type and shape. If it is nil,
	// Write holds every stream. Write omits the others, with a finding.
	Keeps func(f *Feature) bool
	// Stamped reports that rows of this format always have timestamps. OpenOptions.HZ would be
	// ignored, so it is ErrMisuse.
	Stamped bool
	// Extensions are the name endings (".h5") of files of this format. A file with such an ending
	// that no format detects is opened with this format, whose reader can describe the fault best.
	Extensions []string
	// Options describes the keys of OpenOptions.Options that Open accepts.
	Options map[string]string
}

// KeepsClocks reports whether Write, with these options, keeps streams with separate clocks.
func (f Format) KeepsClocks(options map[string]string) bool {
	return f.Clocks || f.WriteOptions["timestamps"] != "" && options["timestamps"] == "true"
}

// OpenOptions are the options of opening that all formats have.
type OpenOptions struct {
	Format string `json:"format,omitempty"` // "" = detect
	// MemoryBudget is the number of bytes for tables, indexes and open files. 0 is the default of
	// the format.
	MemoryBudget int64 `json:"memory_budget,omitempty"`
	// HZ is the rate of the rows, for formats without timestamps. If it is zero, the format decides.
	HZ Rate `json:"rows_hz,omitzero"`
	// Split selects the episodes of a split of the dataset (Info.Splits). "" and SplitAll select
	// all.
	Split string `json:"split,omitempty"`
	// Episodes selects episodes by index, in the dataset's order. nil selects all.
	Episodes []int    `json:"episodes,omitempty"`
	Map      *Mapping `json:"map,omitempty"`
	// FollowLinks allows links of a local dataset that lead out of its root, as git-annex and DVC
	// make them. The cache of Hugging Face does not need it. The author of the dataset can then
	// choose which files of this machine are read.
	FollowLinks bool `json:"follow_links,omitempty"`
	// RecordingIndex is the path or URI of an index of recordings (package format/recindex). If it is
	// empty, the index at the root of the dataset is used, if there is one. "off" uses none.
	RecordingIndex string `json:"recording_index,omitempty"`
	// Repair opens a dataset that is refused because its tables contradict each other in a way that
	// rewriting it repairs. Each contradiction is a finding. doctor sets it.
	Repair bool `json:"-"`
	// Growing opens the complete part of a dataset whose recorder is at work, or was killed. Files
	// that are not complete are left out, and each is a finding. Loaders that follow a dataset set
	// it.
	Growing bool `json:"-"`
	// Options are options of one format: see Format.Options. An unknown one is ErrMisuse.
	Options map[string]string `json:"options,omitempty"`
}

var registry struct {
	sync.RWMutex
	formats map[string]Format
}

// Register adds a format to the formats that Open tries. Format packages call it from init.
func Register(f Format) {
	registry.Lock()
	defer registry.Unlock()
	if registry.formats == nil {
		registry.formats = map[string]Format{}
	}
	registry.formats[f.Name] = f
}

// Formats returns the names of the registered formats in alphabetical order.
func Formats() []string {
	registry.RLock()
	defer registry.RUnlock()
	names := make([]string, 0, len(registry.formats))
	for n := range registry.formats {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// FormatNamed returns the registered format with a name, or ErrUnsupported.
func FormatNamed(name string) (Format, error) {
	registry.RLock()
	f, ok := registry.formats[name]
	registry.RUnlock()
	if !ok {
		return f, Unsupported("open", nil, "no format named %s", name).
			WithHint("known formats: %s", strings.Join(Formats(), ", "))
	}
	return f, nil
}

// DefaultFormat returns the name of the format that is written if the user names none. It returns
// "" if no format is registered.
func DefaultFormat() string {
	for _, n := range Formats() {
		if f, err := FormatNamed(n); err == nil && f.Default {
			return n
		}
	}
	return ""
}

// checkOptions rejects options that the format does not have.
func (f *Format) checkOptions(uri string, opt *OpenOptions) error {
	for _, options := range []map[string]string{opt.Options, opt.Map.formatOptions()} {
		for k := range options {
			if _, ok := f.Options[k]; ok {
				continue
			}
			hint := "it has none"
			if len(f.Options) > 0 {
				hint = "it has " + strings.Join(slices.Sorted(maps.Keys(f.Options)), ", ")
			}
			where := Where{"dataset": Redact(uri)}
			return Misuse("open", where, "format %s has no option %s", f.Name, k).
				WithHint("%s", hint)
		}
	}
	return f.checkRate(uri, opt)
}

// openDataset opens a dataset of this format and selects the episodes that the options ask for.
func (f *Format) openDataset(
	ctx context.Context, uri string, opt OpenOptions,
) (Dataset, error) {
	if err := f.checkOptions(uri, &opt); err != nil {
		return nil, err
	}
	if opt.Split == SplitAll {
		opt.Split = ""
	}
	if _, ok := f.Options["split"]; ok && opt.Split != "" {
		// The reader omits the files of other splits.
		if other := opt.Options["split"]; other != "" && other != opt.Split {
			return nil, Misuse("open", Where{"dataset": Redact(uri)}, "two splits").
				Expected(opt.Split, Option("options", "split", other))
		}
		opt.Options = maps.Clone(opt.Options)
		if opt.Options == nil {
			opt.Options = map[string]string{}
		}
		opt.Options["split"] = opt.Split
	}
	ds, err := f.Open(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	whole := ds
	if own := opt.Options["split"]; own != "" {
		if own != SplitAll {
			ds.Info().Split = own
		}
	} else if opt.Split != "" {
		ds, err = openSplit(ds, opt.Split)
	}
	if err == nil && opt.Episodes != nil {
		ds, err = openEpisodes(ds, opt.Episodes)
	}
	if err != nil {
		_ = whole.Close()
		return nil, At(err, Where{"dataset": Redact(uri)})
	}
	return ds, nil
}

// checkRate rejects a rate for rows that have timestamps.
func (f *Format) checkRate(uri string, opt *OpenOptions) error {
	option, hz := "rows_hz", opt.HZ
	if m := opt.Map; m != nil && !m.HZ.Zero() && (hz.Zero() || hz == m.HZ) {
		option, hz = "hz of the mapping", m.HZ
	}
	if !f.Stamped || hz.Zero() {
		return nil
	}
	return Misuse(
		"open",
		Where{"dataset": Redact(uri)},
		"%s says the rate of rows that keep no clock; the rows of %s have timestamps",
		option,
		f.Name,
	).
		Expected("none", hz.String()+" Hz").
		WithHint("leave it out; %s resamples, %s gives rows another rate as they are",
			Option("hz"), Command("convert --fps=RATE"))
}

// Open opens the dataset at uri: a path, or a file://, http(s)://, hf://, s3://, gs:// or mem://
// URI. It detects the format unless the options name one. At most one OpenOptions may be passed.
// The caller must call Close.
func Open(ctx context.Context, uri string, options ...OpenOptions) (Dataset, error) {
	var opt OpenOptions
	switch len(options) {
	case 0:
	case 1:
		opt = options[0]
	default:
		return nil, Misuse("open", Where{"dataset": Redact(uri)}, "").
			Expected("at most one OpenOptions", strconv.Itoa(len(options)))
	}
	if uri == "" {
		return nil, Misuse("open", nil, "empty URI")
	}
	opt.FollowLinks = opt.FollowLinks || linkedFile(uri)
	ds, err := openDetected(ctx, uri, opt)
	return ds, withHubHint(uri, err)
}

// linkedFile reports whether a URI names a link to a file of this machine. A user who names a link
// itself wants the file that it leads to.
func linkedFile(uri string) bool {
	path := strings.TrimPrefix(uri, "file://")
	link, err := os.Lstat(path)
	if err != nil || link.Mode()&os.ModeSymlink == 0 {
		return false
	}
	to, err := os.Stat(path)
	return err == nil && to.Mode().IsRegular()
}

// hubName matches the name of a dataset of the Hugging Face hub: owner/name.
var hubName = regexp.MustCompile(`^(hf://)?(datasets/)?([\w-][\w.-]*/[\w-][\w.-]*)(@.*)?$`)

var fileEnding = regexp.MustCompile(`\.[A-Za-z]\w*$`) // .mcap, not v2.0

// withHubHint adds to a "not found" error how to open or download a dataset of the Hugging Face
// hub, if uri can be the name of one.
func withHubHint(uri string, err error) error {
	var e *Error
	m := hubName.FindStringSubmatch(uri)
	if m == nil || !errors.As(err, &e) || m[1] == "" && (e.Class != ErrNotFound || m[2] != "") {
		return err
	}
	owner, name, _ := strings.Cut(m[3], "/")
	_, missing := os.Stat(owner)
	if m[1] == "" && (missing == nil || fileEnding.MatchString(name)) {
		return err // uri is a path: its folder exists, or it ends as a file does
	}
	hint := "download the dataset of the Hugging Face hub, and open its folder: hf download " +
		m[3] + " --repo-type dataset --local-dir " + name
	if m[1] == "" {
		hint = "hf://datasets/" + m[3] + " opens a dataset of the Hugging Face hub; or " + hint
	}
	if e.Hint != "" && m[1] == "" {
		hint = e.Hint + "; " + hint
	}
	out := *e
	out.Hint = hint
	return &out
}

// openDetected opens a dataset with the format of the options, or with the first format that
// detects it.
func openDetected(ctx context.Context, uri string, opt OpenOptions) (Dataset, error) {
	names := Formats()
	if opt.Format != "" {
		f, err := FormatNamed(opt.Format)
		if err != nil {
			return nil, At(err, Where{"dataset": Redact(uri)})
		}
		return f.openDataset(ctx, uri, opt)
	}
	var failed error
	for _, n := range names {
		registry.RLock()
		f := registry.formats[n]
		registry.RUnlock()
		ok, err := f.Detect(ctx, uri, opt)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if ok {
			return f.openDataset(ctx, uri, opt)
		}
	}
	if isLocalFile(uri) {
		for _, n := range names {
			if f, err := FormatNamed(n); err == nil && f.matchesExtension(uri) {
				return f.openDataset(ctx, uri, opt)
			}
		}
		return nil, Unsupported(
			"open",
			Where{"dataset": Redact(uri)},
			"a file that no format knows",
		).
			WithHint(
				"of a dataset of many files name the folder; known formats: %s",
				strings.Join(names, ", "),
			)
	}
	_, rest, remote := strings.Cut(uri, "://")
	if failed != nil {
		var e *Error
		path, _, _ := strings.Cut(rest, "?")
		if remote && errors.As(failed, &e) &&
			!strings.HasSuffix(path, fmt.Sprint(e.Where["file"])) {
			// The file was looked for to detect the format. The user named the dataset.
			named := *e
			named.Where = maps.Clone(e.Where)
			delete(named.Where, "file")
			named.Where["dataset"] = Redact(uri)
			failed = &named
		}
		return nil, At(failed, Where{"dataset": Redact(uri)})
	}
	hint := "known formats: " + strings.Join(names, ", ") +
		"; a LeRobot dataset has meta/info.json at its root"
	if remote && !strings.HasPrefix(uri, "file:") {
		hint += "; folders of KITTI and nuScenes are found on this machine alone: " +
			Option("format", "kitti") + " or nuscenes opens them elsewhere"
	}
	where := Where{"dataset": Redact(uri)}
	return nil, NotFound("open", where, "no dataset of a known format is here").
		WithHint("%s", hint)
}

// isLocalFile reports whether uri names a regular file of this machine.
func isLocalFile(uri string) bool {
	name := strings.TrimPrefix(uri, "file://")
	if strings.Contains(name, "://") {
		return false
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// matchesExtension reports whether the name of a file ends with one of the format's extensions.
func (f *Format) matchesExtension(uri string) bool {
	for _, e := range f.Extensions {
		if strings.HasSuffix(strings.ToLower(uri), e) {
			return true
		}
	}
	return false
}
