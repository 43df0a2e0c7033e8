package edit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// partShare is one part of a split: a fraction of all episodes, or a list of positions.
type partShare struct {
	name      string
	fraction  float64
	positions []int
}

// splitEpisodes makes a plan for each part.
func (e *editor) splitEpisodes(ctx context.Context, v *Verb) error {
	if v.Flags != "" {
		if err := e.splitByFlags(ctx, v); err != nil {
			return err
		}
		return nil
	}
	if err := e.plan.checkResult(); err != nil {
		return err
	}
	names, parts, err := e.chooseParts(ctx, v)
	if err != nil {
		return err
	}
	n := len(e.plan.Episodes)
	used := 0
	for i, part := range parts {
		if len(part) == 0 {
			return misuse(
				nil,
				fmt.Sprintf(
					"split: no episode is left for %s: %d episodes into %s",
					names[i],
					n,
					strings.Join(v.Into, ","),
				),
				"larger shares, or fewer parts",
			)
		}
		slices.Sort(part)
		used += len(part)
		var episodes []Episode
		for _, k := range part {
			episodes = append(episodes, e.plan.Episodes[k])
		}
		p := e.addPart(names[i], episodes)
		if used < n && i == len(parts)-1 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d episodes are in no part", n-used))
		}
	}
	return nil
}

// chooseParts returns the names of the parts and the positions of their episodes in the plan.
func (e *editor) chooseParts(
	ctx context.Context,
	v *Verb,
) (names []string, parts [][]int, err error) {
	switch {
	case v.Label != "":
		return nil, nil, misuse(
			nil,
			"a label without a file of flags",
			"Name the file: "+robocache.Option("flags"),
		)
	case v.By != "" && (v.By != "task" || len(v.Into) > 0):
		return nil, nil, misuse(nil, "split: by task, or into parts", "")
	case v.By == "task":
		return e.splitByTask(ctx)
	}
	shares, err := e.parseShares(v.Into)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range shares {
		names = append(names, s.name)
	}
	intoRanges := shares[0].positions != nil
	if !intoRanges {
		units, err := e.splitUnits(ctx, v)
		if err != nil {
			return nil, nil, err
		}
		return names, dealUnits(units, shares), nil
	}
	if v.Seed != nil || v.Stratify != "" || v.Group != "" {
		return nil, nil, misuse(
			nil,
			"split: seed, stratify and group do not apply to ranges of episodes",
			"leave seed, stratify and group out",
		)
	}
	for _, s := range shares {
		parts = append(parts, s.positions)
	}
	return names, parts, nil
}

// addPart adds a part of a split and returns its plan.
func (e *editor) addPart(name string, episodes []Episode) *Plan {
	p := e.plan.clone()
	p.Part, p.Episodes = name, episodes
	e.parts = append(e.parts, p)
	return p
}

// Deal returns the names of the parts of a split and the episode indices of each part, in the
// dataset's order. The verb split uses the same assignment.
func Deal(
	ctx context.Context,
	ds robocache.Dataset,
	v *Verb,
) (names []string, parts [][]int, err error) {
	defer crash.Recover("split", &err)
	e := &editor{req: &Request{}, srcs: []robocache.Dataset{ds}}
	if e.plan, err = newPlan(ctx, e.srcs); err != nil {
		return names, parts, err
	}
	if err := e.splitEpisodes(ctx, v); err != nil {
		return names, parts, err
	}
	for _, p := range e.parts {
		part := make([]int, len(p.Episodes))
		for i, ep := range p.Episodes {
			part[i] = int(ds.Info().EpisodeIndex(ep.Episode))
		}
		names = append(names, p.Part)
		parts = append(parts, part)
	}
	return names, parts, nil
}

// rounding is the tolerance of sums of fractions.
const rounding = 1e-9

// parseShares parses name=0.8, name=40, name=rest and name=0-79,90.
func (e *editor) parseShares(into []string) ([]partShare, error) {
	texts := shareTexts(into)
	hasRange := func(text string) bool { return strings.ContainsAny(text, "-,") }
	if len(texts) < 2 && !slices.ContainsFunc(texts, hasRange) {
		return nil, misuse(
			nil,
			"split needs the names of its parts",
			robocache.Option("into")+", of parts such as train=0.8,val=0.2 or train=0-79",
		)
	}
	p := shareParser{
		total:    float64(len(e.plan.Episodes)),
		numbered: e.numberedInfo(),
		owners:   map[int]string{},
		rest:     -1,
	}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		if err := p.parseShare(name, value); err != nil {
			return nil, err
		}
	}
	if err := p.checkTotal(); err != nil {
		return nil, err
	}
	return p.shares, nil
}

// shareTexts returns the text of each share. Commas separate shares, but also the ranges of one
// share, so a text without "=" belongs to the share before it.
func shareTexts(into []string) (texts []string) {
	for part := range strings.SplitSeq(strings.Join(into, ","), ",") {
		if !strings.Contains(part, "=") && len(texts) > 0 {
			texts[len(texts)-1] += "," + part
		} else if part != "" {
			texts = append(texts, part)
		}
	}
	return texts
}

// shareParser parses the shares of a split, one after the other.
type shareParser struct {
	total    float64         // episodes of the plan
	numbered *robocache.Info // numbers of the episodes
	shares   []partShare
	owners   map[int]string // name of the part, by position of an episode in a range
	sum      float64        // of the fractions
	rest     int            // index of the share name=rest, or -1
	ranges   int            // shares that are ranges
}

// parseShare parses the value of a share and adds it.
func (p *shareParser) parseShare(name, value string) error {
	if !p.isNewName(name) {
		return misuse(
			nil,
			"split: no name for a part, or twice: "+strconv.Quote(name),
			"the name becomes the name of a folder",
		)
	}
	share := partShare{name: name}
	fraction, fractionErr := strconv.ParseFloat(value, 64)
	count, countErr := strconv.Atoi(value)
	switch {
	case value == "rest" && p.rest < 0:
		p.rest = len(p.shares)
	case countErr == nil && count >= 0:
		share.fraction = float64(count) / p.total
	case fractionErr == nil && fraction > 0 && fraction <= 1:
		share.fraction = fraction
	default:
		p.ranges++
		positions, err := p.parseRange(name, value)
		if err != nil {
			return err
		}
		share.positions = positions
	}
	p.sum += share.fraction
	p.shares = append(p.shares, share)
	return nil
}

// isNewName reports whether a part can have the name: it is unused, and the name of a folder.
func (p *shareParser) isNewName(name string) bool {
	isUsed := slices.ContainsFunc(p.shares, func(s partShare) bool { return s.name == name })
	isForbidden := func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) }
	isFolder := !slices.Contains([]string{"", ".", ".."}, name) &&
		!strings.ContainsFunc(name, isForbidden)
	return isFolder && !isUsed
}

// parseRange returns the positions of the episodes in value, the ranges of the part called
// name. It returns an error if another part has one of these episodes.
func (p *shareParser) parseRange(name, value string) ([]int, error) {
	positions, err := p.numbered.ParseEpisodes(value)
	if err != nil {
		return nil, err
	}
	for _, i := range positions {
		if other, ok := p.owners[i]; ok {
			return nil, misuse(
				robocache.Where{"episode": p.numbered.EpisodeIndex(i)},
				"split: an episode in both "+other+" and "+name,
				"",
			)
		}
		p.owners[i] = name
	}
	return positions, nil
}

// checkTotal returns an error if fractions and counts do not add up to all episodes. It sets the
// fraction of name=rest.
func (p *shareParser) checkTotal() error {
	tooMuch := p.sum > 1+rounding
	tooLittle := p.rest < 0 && p.sum < 1-rounding
	switch {
	case p.ranges > 0 && p.ranges < len(p.shares):
		return misuse(
			nil,
			"split: ranges of episodes, or fractions and counts, not a mixture",
			"",
		)
	case p.ranges == 0 && (tooMuch || tooLittle):
		return misuse(
			nil,
			fmt.Sprintf("split: the parts are %.6g of %g episodes", p.sum*p.total, p.total),
			"every episode goes into one part; name=rest takes those that are left",
		)
	case p.rest >= 0:
		p.shares[p.rest].fraction = 1 - p.sum
	}
	return nil
}

// splitUnit is a set of episodes that must go into the same part.
type splitUnit struct {
	stratum   string // each stratum is divided by the same fractions
	positions []int
}

// splitUnits returns the units in the order in which they are dealt out.
func (e *editor) splitUnits(ctx context.Context, v *Verb) (out []splitUnit, err error) {
	view, err := e.openPlan(ctx)
	if err != nil {
		return out, err
	}
	defer view.Close()
	if v.Stratify != "" && v.Stratify != "task" {
		return out, misuse(nil, "split: stratify by "+v.Stratify, "task")
	}
	unitOf := map[string]int{} // by value of the column Group
	for i := range e.plan.Episodes {
		u := splitUnit{positions: []int{i}}
		if v.Stratify != "" {
			episode, err := view.Episode(ctx, i)
			if err != nil {
				return out, err
			}
			u.stratum = strings.Join(episode.Tasks, "\n")
		}
		if v.Group != "" {
			value, err := e.groupValue(ctx, view, v.Group, i)
			if err != nil {
				return out, err
			}
			if k, ok := unitOf[value]; ok {
				out[k].positions = append(out[k].positions, i)
				continue
			}
			unitOf[value] = len(out)
		}
		out = append(out, u)
	}
	if v.Seed != nil {
		const stream = 0x5eed // any constant; another one would change the parts of a seed
		r := rand.New(rand.NewPCG(*v.Seed, stream))
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

// groupValue returns the value of a column in the first row of an episode.
func (e *editor) groupValue(
	ctx context.Context,
	v *planDataset,
	key string,
	episode int,
) (string, error) {
	f := v.info.Feature(key)
	row := []robocache.Row{{Episode: episode}}
	switch {
	case key == "task" || f != nil && f.Kind == robocache.KindText:
		text, err := v.Text(ctx, key, row)
		if err != nil {
			return "", err
		}
		return text[0], nil
	case f == nil || f.Kind != robocache.KindNumeric || f.Ragged():
		return "", misuse(
			robocache.Where{"stream": key},
			"split: no column to group by",
			robocache.Nearest(key, v.info.Keys()),
		)
	}
	raw := make([]byte, f.RowBytes())
	if err := v.Gather(ctx, key, row, raw); err != nil {
		return "", err
	}
	return string(raw), nil
}

// partFor returns the first part that can hold size more episodes, or else the part that lacks the
// most episodes. whole holds the size of each part, and given the number of episodes that it
// already has.
func partFor(size int, whole, given []int) int {
	best := 0
	for i := range whole {
		if whole[i]-given[i] >= size {
			return i
		}
		if whole[i]-given[i] > whole[best]-given[best] {
			best = i
		}
	}
	return best
}

// dealUnits gives each part its share of every stratum, by largest remainder. Rounding errors of
// one stratum are carried over to the next.
func dealUnits(units []splitUnit, shares []partShare) [][]int {
	strata := map[string][]splitUnit{}
	var order []string
	for _, u := range units {
		if _, ok := strata[u.stratum]; !ok {
			order = append(order, u.stratum)
		}
		strata[u.stratum] = append(strata[u.stratum], u)
	}
	parts := make([][]int, len(shares))
	carry := make([]float64, len(shares))
	for _, name := range order {
		size := 0
		for _, u := range strata[name] {
			size += len(u.positions)
		}
		quota := make([]float64, len(shares))
		for i, s := range shares {
			quota[i] = s.fraction*float64(size) + carry[i]
		}
		whole := roundQuotas(quota, size)
		given := make([]int, len(shares))
		for _, u := range strata[name] {
			best := partFor(len(u.positions), whole, given)
			given[best] += len(u.positions)
			parts[best] = append(parts[best], u.positions...)
		}
		for i := range shares {
			carry[i] = quota[i] - float64(given[i])
		}
	}
	return parts
}

// roundQuotas rounds quotas to whole numbers with the given sum, by largest remainder.
func roundQuotas(quotas []float64, sum int) []int {
	rounded := make([]int, len(quotas))
	left := sum
	for i, quota := range quotas {
		rounded[i] = max(0, int(math.Floor(quota+rounding)))
		left -= rounded[i]
	}
	// left is negative if a negative quota was raised to 0.
	step := 1
	if left < 0 {
		step = -1
	}
	remainder := func(i int) float64 { return quotas[i] - float64(rounded[i]) }
	for ; left != 0; left -= step {
		best := 0
		for i := range quotas {
			isBetter := float64(step)*(remainder(i)-remainder(best)) > rounding
			canChange := step > 0 || rounded[i] > 0
			if isBetter && canChange {
				best = i
			}
		}
		rounded[best] += step
	}
	return rounded
}

// splitByTask returns one part for each task, or set of tasks, of an episode. The part is named
// after the task.
func (e *editor) splitByTask(ctx context.Context) (names []string, parts [][]int, err error) {
	v, err := e.openPlan(ctx)
	if err != nil {
		return names, parts, err
	}
	defer v.Close()
	partOf := map[string]int{} // by task
	taken := map[string]bool{}
	for i := range e.plan.Episodes {
		episode, err := v.Episode(ctx, i)
		if err != nil {
			return names, parts, err
		}
		task := strings.Join(episode.Tasks, " ")
		k, ok := partOf[task]
		if !ok {
			k = len(parts)
			partOf[task] = k
			names = append(names, folderName(task, fmt.Sprintf("task-%d", k), taken))
			parts = append(parts, nil)
		}
		parts[k] = append(parts[k], i)
	}
	return names, parts, nil
}

// folderName returns an unused folder name made of the letters and digits of a text, and marks it
// as taken. It uses fallback if the text has no such characters, or too many.
func folderName(text, fallback string, taken map[string]bool) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, text), "-")
	if len(name) > 60 || name == "" {
		name = fallback
	}
	for base, n := name, 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	taken[name] = true
	return name
}
