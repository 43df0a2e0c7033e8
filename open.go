package robocache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Format is what a format package registers.
type Format struct {
	Name string
	// Detect says whether the dataset at uri is of this format. An error means that it could not be
	// looked at.
	Detect func(ctx context.Context, uri string, opt OpenOptions) (bool, error)
	Open   func(ctx context.Context, uri string, opt OpenOptions) (Dataset, error)
	// Write writes a dataset in this format; nil where it has no writer.
	Write func(ctx context.Context, src Dataset, dst string, opt WriteOptions) (*WriteReport, error)
	// WriteOptions names the keys of WriteOptions.Options that Write knows, each with what it does.
	WriteOptions map[string]string
	// WriteAs names the format whose writer stands for this one's, where this one is a container
	// without a layout of its own.
	WriteAs string
	// Default says that this format is written where none is named.
	Default bool
	// Sharding is how a dataset is written in shards; nil where it cannot be.
	Sharding *Sharding
	// NeedsEpisodes reports that a dataset without episodes cannot be written: it would be no
	// dataset of this format.
	NeedsEpisodes bool
	// Resumes says that Write knows WriteOptions.Resume and DryRun.
	Resumes bool
	// StatsFile is where a dataset keeps its statistics, as stats.Marshal writes them; "" =
	// nowhere.
	StatsFile string
	// WholeDoctor says that Diagnose of its datasets looks at every timestamp, row and image
	// itself: checks that hold for all formats are left out.
	WholeDoctor bool
	// Clocks says that Write keeps streams on clocks of their own. Other writers want one clock:
	// align.View gives a dataset that.
	Clocks bool
	// KeepsLacking reports that Write leaves a stream that an episode lacks (Capabilities.Lacks)
	// out of that episode. For other writers such an episode is malformed.
	KeepsLacking bool
	// Keeps reports whether Write can hold a stream, by its kind, type and shape; nil: it holds
	// every stream. Write leaves out the others, with a finding.
	Keeps func(f *Feature) bool
	// Stamped says that rows of this format always have timestamps: OpenOptions.HZ, which would be
	// ignored, is ErrMisuse.
	Stamped bool
	// Extensions are the endings (".h5") of files of this format. A file with one, that no format
	// knows by its contents, is opened as this format's: its reader says best what is wrong with
	// it.
	Extensions []string
	// Options names the keys of OpenOptions.Options that Open knows, each with what it does.
	Options map[string]string
}

// KeepsClocks says that Write keeps streams on clocks of their own, with these choices of its
// options.
func (f Format) KeepsClocks(options map[string]string) bool {
	return f.Clocks || f.WriteOptions["timestamps"] != "" && options["timestamps"] == "true"
}

// OpenOptions are the choices that hold for every format.
type OpenOptions struct {
	Format string `json:"format,omitempty"` // "" = detect
	// bytes for tables, indexes and open files; 0 = a default of the format
	MemoryBudget int64 `json:"memory_budget,omitempty"`
	// --rows-hz: of the rows, for formats that keep no clock; zero = as the format knows or finds
	HZ Rate `json:"rows_hz,omitzero"`
	// the episodes of a split of the dataset (Info.Splits) alone; "" or SplitAll: all
	Split string `json:"split,omitempty"`
	// these alone, by index, in the dataset's order; nil: all
	Episodes []int    `json:"episodes,omitempty"`
	Map      *Mapping `json:"map,omitempty"`
	// FollowLinks lets links of a local dataset lead out of its root, as those of git-annex and DVC
	// do. Those of Hugging Face's cache need it not. Whoever wrote the dataset then chooses which
	// files of this machine are read.
	FollowLinks bool `json:"follow_links,omitempty"`
	// Repair opens a dataset that is refused because its tables contradict each other in a way that
	// rewriting it repairs. Each contradiction is a finding. doctor sets it.
	Repair bool `json:"-"`
	// Options are choices of one format alone; Format.Options lists them. An unknown one is
	// ErrMisuse.
	Options map[string]string `json:"options,omitempty"`
}

var registry struct {
	sync.RWMutex
	formats map[string]Format
}

// Register makes a format known. Format packages call it from init.
func Register(f Format) {
	registry.Lock()
	defer registry.Unlock()
	if registry.formats == nil {
		registry.formats = map[string]Format{}
	}
	registry.formats[f.Name] = f
}

// Formats lists the names of the registered formats.
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

// FormatNamed finds a registered format by its name.
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

// DefaultFormat is the name of the format that is written where none is named; "" where none is
// registered.
func DefaultFormat() string {
	for _, n := range Formats() {
		if f, err := FormatNamed(n); err == nil && f.Default {
			return n
		}
	}
	return ""
}

// open refuses options that the format does not have.
func (f *Format) open(ctx context.Context, uri string, opt OpenOptions) (Dataset, error) {
	for _, options := range []map[string]string{opt.Options, opt.Map.options()} {
		for k := range options {
			if _, ok := f.Options[k]; !ok {
				known := make([]string, 0, len(f.Options))
				for n := range f.Options {
					known = append(known, n)
				}
				sort.Strings(known)
				hint := "it has none"
				if len(known) > 0 {
					hint = "it has " + strings.Join(known, ", ")
				}
				return nil, Misuse(
					"open",
					Where{"dataset": Redact(uri)},
					"format %s has no option %s",
					f.Name,
					k,
				).
					WithHint("%s", hint)
			}
		}
	}
	if err := f.rated(uri, &opt); err != nil {
		return nil, err
	}
	if opt.Split == SplitAll {
		opt.Split = ""
	}
	if _, ok := f.Options["split"]; ok && opt.Split != "" {
		// Its reader leaves out the files of the others.
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
		ds, err = split(ds, opt.Split)
	}
	if err == nil && opt.Episodes != nil {
		ds, err = chosen(ds, opt.Episodes)
	}
	if err != nil {
		_ = whole.Close()
		return nil, At(err, Where{"dataset": Redact(uri)})
	}
	return ds, nil
}

// rated refuses a rate for rows that have timestamps.
func (f *Format) rated(uri string, opt *OpenOptions) error {
	said, hz := "rows_hz", opt.HZ
	if m := opt.Map; m != nil && !m.HZ.Zero() && (hz.Zero() || hz == m.HZ) {
		said, hz = "hz of the mapping", m.HZ
	}
	if !f.Stamped || hz.Zero() {
		return nil
	}
	return Misuse(
		"open",
		Where{"dataset": Redact(uri)},
		"%s says the rate of rows that keep no clock; the rows of %s have timestamps",
		said,
		f.Name,
	).
		Expected("none", hz.String()+" Hz").
		WithHint("leave it out; %s resamples, %s gives rows another rate as they are", Option("hz"), Command("convert --fps=RATE"))
}

// Open opens the dataset at uri: a path, file://, http(s):// or mem://. The format is detected
// unless the options, of which there is at most one, name it.
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
	ds, err := open(ctx, uri, opt)
	return ds, fromHub(uri, err)
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

// hubName is how the Hugging Face hub names a dataset: owner/name.
var hubName = regexp.MustCompile(`^(hf://)?(datasets/)?([\w-][\w.-]*/[\w-][\w.-]*)(@.*)?$`)

var fileEnding = regexp.MustCompile(`\.[A-Za-z]\w*$`) // .mcap, not v2.0

// fromHub adds to an error that there is nothing how a dataset of the hub is got, where the name is
// one of the hub's.
func fromHub(uri string, err error) error {
	var e *Error
	m := hubName.FindStringSubmatch(uri)
	if m == nil || !errors.As(err, &e) || m[1] == "" && (e.Class != ErrNotFound || m[2] != "") {
		return err
	}
	owner, name, _ := strings.Cut(m[3], "/")
	if _, missing := os.Stat(
		owner,
	); m[1] == "" &&
		(missing == nil || fileEnding.MatchString(name)) {
		return err // a folder of that name is here, or it is a file's name: a path
	}
	hint := "download the dataset of the Hugging Face hub, and open its folder: hf download " + m[3] + " --repo-type dataset --local-dir " + name
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

// open opens a dataset whose URI and options were looked at.
func open(ctx context.Context, uri string, opt OpenOptions) (Dataset, error) {
	names := Formats()
	if opt.Format != "" {
		f, err := FormatNamed(opt.Format)
		if err != nil {
			return nil, At(err, Where{"dataset": Redact(uri)})
		}
		return f.open(ctx, uri, opt)
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
			return f.open(ctx, uri, opt)
		}
	}
	if aFile(uri) {
		for _, n := range names {
			if f, err := FormatNamed(n); err == nil && f.claims(uri) {
				return f.open(ctx, uri, opt)
			}
		}
		return nil, Unsupported(
			"open",
			Where{"dataset": Redact(uri)},
			"a file that no format knows",
		).
			WithHint("of a dataset of many files name the folder; known formats: %s", strings.Join(names, ", "))
	}
	_, rest, remote := strings.Cut(uri, "://")
	if failed != nil {
		var e *Error
		if place, _, _ := strings.Cut(
			rest,
			"?",
		); remote && errors.As(failed, &e) &&
			!strings.HasSuffix(place, fmt.Sprint(e.Where["file"])) {
			named := *e // what was looked for to know the format is nothing that the user named
			named.Where = maps.Clone(e.Where)
			delete(named.Where, "file")
			named.Where["dataset"] = Redact(uri)
			failed = &named
		}
		return nil, At(failed, Where{"dataset": Redact(uri)})
	}
	hint := "known formats: " + strings.Join(
		names,
		", ",
	) + "; a LeRobot dataset has meta/info.json at its root"
	if remote && !strings.HasPrefix(uri, "file:") {
		hint += "; folders of KITTI and nuScenes are found on this machine alone: " + Option(
			"format",
			"kitti",
		) + " or nuscenes opens them elsewhere"
	}
	return nil, NotFound(
		"open",
		Where{"dataset": Redact(uri)},
		"no dataset of a known format is here",
	).
		WithHint("%s", hint)
}

// aFile says whether uri is a regular file of this machine.
func aFile(uri string) bool {
	name := strings.TrimPrefix(uri, "file://")
	if strings.Contains(name, "://") {
		return false
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// claims says whether a file's name ends as those of the format do.
func (f *Format) claims(uri string) bool {
	for _, e := range f.Extensions {
		if strings.HasSuffix(strings.ToLower(uri), e) {
			return true
		}
	}
	return false
}
