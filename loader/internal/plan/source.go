package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// Source is one dataset of a loader, with everything that Compile derives from it. Most loaders
// have one source. A mixture has several.
type Source struct {
	column.DataSource
	report *Report
	folder *CacheFolder
	Name   string // of a mixture's source
	// the loader's configuration with the overrides of this source of the mixture
	Config        options.Config
	positions     []int    // positions of the episodes to read (chooseEpisodes); nil: all
	known         []string // keys of the dataset
	constants     map[string]options.Constant
	weights       map[int]float64    // of episodes, by position; nil: all are 1
	inputs        []*column.Column   // columns that only vectors read
	drawnCount    int                // alternatives of columns, which are not in Columns
	undelivered   []NotDelivered     // ragged streams that the format cannot read
	LostEpisodes  []order.BadEpisode // found by opening and skipped
	spanSlots     map[string]int     // maximum samples of a span (widestSpans)
	Files         frames.Files
	decodeDevice  video.DeviceMemory // device that decodes; nil: none
	deviceWorkers int                // workers that wait for the device
	identity      sync.Map           // hashes of the values of streams (ValuesHash)
}

// open compiles the source. sources is the number of sources in the mixture, which share the memory
// budget.
func (src *Source) open(ctx context.Context, sources int) error {
	src.chooseRules()
	var err error
	if src.Timebase, err = newTimebase(src.Dataset.Info(), &src.Config); err != nil {
		return err
	}
	memory := int64(src.Config.MemoryBudget) / int64(sources)
	src.Timestamps = &column.Timestamps{
		Info:       src.Dataset.Info(),
		Read:       src.readTimestamps,
		HalfBudget: memory / 64,
	}
	src.Arrivals = &column.Timestamps{
		Info:       src.Dataset.Info(),
		Read:       src.readArrivals,
		HalfBudget: memory / 64,
	}
	src.VideoStart = src.Dataset.Capabilities().VideoStart
	return withoutClockHint(src.compile(ctx, memory))
}

// chooseRules sets the rules for reading rows from the source's configuration.
func (src *Source) chooseRules() {
	cfg := &src.Config
	src.ReadRules = column.ReadRules{
		Tolerance: cfg.Tolerance,
		SkipBad:   cfg.OnBadEpisode == options.Skip,
		RefuseNaN: cfg.OnNaN == options.NaNError,
		Seed:      cfg.Seed,
	}
	if cfg.Augment != nil && cfg.Augment.Flip != nil {
		src.Flip = cfg.Augment.Flip.P
	}
	if cfg.Align != nil {
		src.Rate = cfg.Align.HZ
	}
	if cfg.OnNaN != options.NaNAllow {
		src.FiniteRows = column.NewFiniteRows(src.Dataset)
	}
	if cfg.OnNaN == options.NaNMask {
		src.Dataset = maskNaN(src.Dataset, src.FiniteRows)
	}
}

// compile sets, in this order: the columns, the sample table, the video files, and for each column
// its normalization, its alignment, the size of its frames and its augmentation. Each step reads
// what the steps before it have set. memory is the source's share of the memory budget in bytes.
func (src *Source) compile(ctx context.Context, memory int64) error {
	if err := src.widestSpans(ctx); err != nil {
		return err
	}
	if err := src.makeColumns(); err != nil {
		return err
	}
	if err := src.applyTextRules(); err != nil {
		return err
	}
	if err := src.checkClock(ctx); err != nil {
		return err
	}
	if !src.Timebase.IsGrid && src.Timebase.Key == "" && !src.hasTimedColumn() {
		src.Timestamps.Read = src.Dataset.Times
	}
	if limit := src.Dataset.Capabilities().LimitMemory; limit != nil {
		limit(memory / 8)
	}
	if err := src.applyBeyond(); err != nil {
		return err
	}
	if err := src.countSamples(ctx); err != nil {
		return err
	}
	if err := src.openFiles(memory / 8); err != nil {
		return err
	}
	if err := src.setNormalization(ctx); err != nil {
		return err
	}
	if err := src.setVectorNorms(ctx); err != nil {
		return err
	}
	if err := src.alignColumns(); err != nil {
		return err
	}
	if err := src.probeSizes(ctx); err != nil {
		return err
	}
	if err := src.checkAlternatives(); err != nil {
		return err
	}
	return src.applyAugment()
}

// checkClock rejects columns that are read by time if the dataset's rows have no clock. Without
// this check the error would appear only at the first batch.
func (src *Source) checkClock(ctx context.Context) error {
	info := src.Dataset.Info()
	if !info.FPS.Zero() || info.Clock != "" {
		return nil
	}
	first := 0
	for first < info.Episodes && src.Dataset.Len(first) == 0 {
		first++
	}
	for _, c := range src.readColumns() {
		if c.Time == nil || c.Feature == nil || first == info.Episodes {
			continue
		}
		_, err := src.Dataset.Times(ctx, first, c.Feature.Key)
		if errors.Is(err, robocache.ErrNoClock) {
			return robocache.At(err, robocache.Where{"stream": c.Key})
		}
	}
	return nil
}

// withoutClockHint adds a hint to an ErrNoClock error: which streams and windows need no time.
func withoutClockHint(err error) error {
	var e *robocache.Error
	if !errors.Is(err, robocache.ErrNoClock) || !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Hint += "; without time there are streams on the samples' rows (" + robocache.Option("keys") +
		", " + robocache.Option("anchor") + "), and windows in rows (" +
		robocache.Option("delta_indices") + ")"
	return &c
}

func (src *Source) close() {
	if src.Files != nil {
		src.Files.Close()
	}
}

// countSamples builds the sample table. In skip mode it leaves out the episodes that opening lost
// (Finding.Lost). Otherwise a lost episode is an error. Episodes with other findings stay in the
// table, whatever the severity, because their rows can be read.
func (src *Source) countSamples(ctx context.Context) error {
	info, cfg, report := src.Dataset.Info(), &src.Config, src.report
	exclude := map[int]bool{}
	if cfg.OnBadEpisode != "skip" {
		hint := robocache.Option("on_bad_episode", "skip") +
			" trains on the rest, and the statistics list what is left out (bad_episodes)"
		if err := robocache.Whole(src.Dataset, src.positions, "loader", hint); err != nil {
			return err
		}
	} else {
		for i := range info.Findings {
			f := &info.Findings[i]
			if !f.Lost {
				continue // reading the episode reports whether it is bad
			}
			e := -1
			if position, named := info.PositionIn(f.Where); named {
				e = position
				isSelected := src.positions == nil || slices.Contains(src.positions, e)
				if e < 0 || exclude[e] || !isSelected {
					continue
				}
				exclude[e] = true
				report.Skipped.Add(int64(src.Dataset.Len(e)))
			}
			src.LostEpisodes = append(
				src.LostEpisodes,
				order.BadEpisode{Source: src.Index, Episode: e, Error: f.Message},
			)
			report.Warn(f.Where.String() + " is left out: " + f.Message)
		}
	}
	if err := src.excludeLacking(ctx, exclude); err != nil {
		return err
	}
	if err := src.excludeUnlabeled(ctx, exclude); err != nil {
		return err
	}
	weights, err := src.episodeWeights(ctx, exclude)
	if err != nil {
		return err
	}
	for e, weight := range weights {
		if weight == 0 {
			exclude[e] = true
		} else if weight != 1 {
			src.weights = weights
		}
	}
	selection, err := src.selectRows()
	if err != nil {
		return err
	}
	src.limitGoals(selection.Last)
	src.Table, err = order.NewTable(
		info.Episodes,
		selection,
		exclude,
		src.countRows(ctx, exclude),
		src.Timebase.IsGrid,
	)
	if err != nil {
		return err
	}
	src.Table.Print.Format = info.Format
	if c := src.Column("index"); c != nil && column.Is[*column.GeneratedColumn](c) &&
		!src.Timebase.IsGrid && src.Timebase.Clock == "" {
		src.RowsBefore = make([]int64, info.Episodes)
		for e := 1; e < info.Episodes; e++ {
			src.RowsBefore[e] = src.RowsBefore[e-1] + int64(src.Dataset.Len(e-1))
		}
	}
	switch emptied := src.Table.Emptied; { // by options such as drop_n_last_frames
	case len(emptied) > 10:
		report.Warn(fmt.Sprintf("%d episodes are left without a sample: %v …",
			len(emptied), info.EpisodeIndices(emptied[:10])))
	case len(emptied) > 0:
		report.Warn(fmt.Sprintf("episodes left without a sample: %v", info.EpisodeIndices(emptied)))
	}
	// A dataset without episodes is no error: the loader then has length 0.
	if src.Table.Samples() == 0 && src.Dataset.Info().Episodes > 0 {
		return robocache.Misuse("loader", nil, "no samples: the selected episodes are empty")
	}
	return nil
}

// chosenEpisodes returns the positions of the episodes to read.
func (src *Source) chosenEpisodes() []int {
	if src.positions != nil {
		return src.positions
	}
	all := make([]int, src.Dataset.Info().Episodes)
	for e := range all {
		all[e] = e
	}
	return all
}

// excludeLacking adds to exclude the episodes that lack a stream of the batch. Without skip mode
// such an episode is an error. With missing="pad" no episode counts as lacking a stream.
func (src *Source) excludeLacking(ctx context.Context, exclude map[int]bool) error {
	ds, cfg := src.Dataset, &src.Config
	if ds.Capabilities().Lacks == nil {
		return nil
	}
	for _, e := range src.chosenEpisodes() {
		if exclude[e] {
			continue
		}
		columns := src.readColumns()
		i := slices.IndexFunc(columns, func(c *column.Column) bool {
			return c.Feature != nil && robocache.Lacks(ds, e, c.Feature.Key)
		})
		if i < 0 {
			continue
		}
		err := robocache.Malformed("loader",
			src.Where(columns[i], robocache.Row{Episode: e, Index: -1}),
			"the episode lacks this stream, other episodes have it").
			WithHint("%s", robocache.LackingHint())
		if cfg.OnBadEpisode != "skip" {
			return err
		}
		exclude[e] = true
		src.report.Skipped.Add(int64(ds.Len(e)))
		src.LostEpisodes = append(
			src.LostEpisodes,
			order.BadEpisode{Source: src.Index, Episode: e, Error: err.Error()},
		)
		src.report.Warn(err.Where.String() + " is left out: " + err.Msg)
	}
	return nil
}

// chooseEpisodes sets the episodes that the source reads: those of Config.Episodes or Config.Split,
// or else those of the split for training. note is a message if the split was chosen by default.
func (src *Source) chooseEpisodes() (note string, err error) {
	c, info := &src.Config, src.Dataset.Info()
	switch {
	case c.Split != "" && c.Split != robocache.SplitAll && c.Episodes != nil:
		return "", robocache.Misuse("loader", nil, "split and episodes name two choices of "+
			"episodes").
			WithHint("Pass one of them.")
	case c.Episodes != nil:
		src.positions, err = info.EpisodePositions(c.Episodes)
		return "", err
	case c.Split == robocache.SplitAll, c.Split == "" && c.Compat == "lerobot":
		// LeRobot's own class reads all splits.
		return "", nil
	case c.Split != "" && c.Split == info.Split:
		return "", nil
	case c.Split != "":
		if src.positions, err = info.SplitEpisodes(c.Split); err == nil && len(src.positions) == 0 {
			err = robocache.Misuse(
				"loader",
				robocache.Where{"dataset": info.URI},
				"the split %s has no episodes",
				c.Split,
			)
		}
		return "", err
	}
	name, positions := info.TrainSplit()
	if name == "" {
		return "", nil
	}
	src.positions = positions
	note = fmt.Sprintf("%s: the split %s is read, %d of %d episodes; %s reads all", info.URI, name,
		len(positions), info.Episodes, robocache.Option("split", "all"))
	others := slices.DeleteFunc(info.SplitNames(), func(n string) bool { return n == name })
	if len(others) > 0 {
		note += ", others are " + strings.Join(others, ", ")
	}
	return note, nil
}
