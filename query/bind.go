package query

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
)

// Bound is an expression bound to a dataset. It is safe for concurrent use.
type Bound struct {
	source *source
	root   *node
}

// binder binds the parts of an expression.
type binder struct {
	ctx    context.Context
	source *source
	clocks map[string]string // name of a clock → key of a stream that has it
	table  *quality.Table    // nil: not loaded
}

// Bind checks an expression against a dataset. It reads the dataset if rising or falling has no
// threshold.
func (e *Expr) Bind(ctx context.Context, ds robocache.Dataset, opt Options) (*Bound, error) {
	b := newBinder(ctx, ds, opt)
	root, err := b.bind(e.root, false)
	if err != nil {
		return nil, err
	}
	if root.isFlag {
		root = flagCondition(root)
	}
	if root.kind != truthKind && !root.kind.hasOccurrences() {
		return nil, syntaxError(
			root.at,
			"the expression is %s, no comparison",
			kindNames[root.kind],
		)
	}
	return &Bound{b.source, root}, nil
}

func newBinder(ctx context.Context, ds robocache.Dataset, opt Options) *binder {
	return &binder{
		ctx:    ctx,
		source: &source{ds: ds, info: ds.Info(), index: opt.Index, threads: opt.Threads},
		clocks: map[string]string{},
		table:  opt.Quality,
	}
}

// Numbers returns the value of the expression, a number of the episode such as q.score, for the
// episodes at some positions.
func (e *Expr) Numbers(
	ctx context.Context, ds robocache.Dataset, positions []int, opt Options,
) ([]float64, error) {
	b := newBinder(ctx, ds, opt)
	root, err := b.bind(e.root, false)
	if err != nil {
		return nil, err
	}
	if root.kind != numberKind {
		return nil, syntaxError(root.at, "the expression is %s, expected a number of the episode",
			kindNames[root.kind])
	}
	out := make([]float64, len(positions))
	return out, b.source.forEach(ctx, positions, func(x *episodeRun, i int) error {
		v, err := root.eval(x)
		out[i] = v.number
		return err
	})
}

// episodeTerms are the names of values of an episode that are not streams.
var episodeTerms = map[string]node{
	"task": {kind: textsKind, eval: func(x *episodeRun) (value, error) {
		episode, err := x.source.ds.Episode(x.ctx, x.position)
		return value{texts: episode.Tasks}, err
	}},
	"index": {kind: numberKind, isOrdinal: true, eval: func(x *episodeRun) (value, error) {
		return value{number: float64(x.source.info.EpisodeIndex(x.position))}, nil
	}},
	"source": {kind: numberKind, isOrdinal: true, eval: func(x *episodeRun) (value, error) {
		if merged, ok := x.source.ds.(Merged); ok {
			return value{number: float64(merged.SourceOf(x.position))}, nil
		}
		return value{}, nil
	}},
	"length": {kind: numberKind, eval: func(x *episodeRun) (value, error) {
		return value{number: float64(x.source.ds.Len(x.position))}, nil
	}},
	"duration": {kind: numberKind, eval: func(x *episodeRun) (value, error) {
		times, err := x.times("")
		if errors.Is(err, robocache.ErrUnsupported) || err == nil && len(times) == 0 {
			return value{number: math.NaN()}, nil
		}
		if err != nil {
			return value{}, err
		}
		return value{number: float64(times[len(times)-1]-times[0]) / 1e9}, nil
	}},
}

// bind binds a node of the syntax tree. In arguments of functions, names of streams precede names
// of values of the episode.
func (b *binder) bind(s *syntax, inFunction bool) (*node, error) {
	switch s.name {
	case numberSyntax:
		number := s.value
		return &node{
			kind: numberKind, at: s.at, constant: &number,
			eval:  func(*episodeRun) (value, error) { return value{number: number}, nil },
			reach: func(*episodeRun) reach { return reach{lo: number, hi: number} },
		}, nil
	case columnSyntax:
		return b.bindName(s, inFunction)
	}
	if name, ok := strings.CutPrefix(s.name, callPrefix); ok {
		return b.bindCall(s, name)
	}
	args := make([]*node, len(s.args))
	for i, arg := range s.args {
		var err error
		if args[i], err = b.bind(arg, inFunction); err != nil {
			return nil, err
		}
	}
	var out *node
	var err error
	switch {
	case slices.Contains(comparisonSymbols, s.name):
		out, err = b.bindComparison(s, args[0], args[1])
	case s.name == "and" || s.name == "or":
		out, err = bindLogic(s, args[0], args[1])
	case s.name == "not":
		out, err = bindNot(s, args[0])
	case s.name == heldSyntax:
		out, err = bindHeld(s, args[0])
	case s.name == whileSyntax:
		out, err = bindWhile(s, args[0], args[1])
	case s.name == thenSyntax:
		out, err = bindThen(s, args[0], args[1])
	default:
		out, err = b.bindArithmetic(s, args)
	}
	if out != nil {
		out.at = s.at
	}
	return out, err
}

// bindName binds a name: a value of the episode, of the quality table, or a stream. A text in
// quotes without a channel is a text until a signal is expected.
func (b *binder) bindName(s *syntax, inFunction bool) (*node, error) {
	if s.kind == textToken && len(s.args) == 0 && !inFunction {
		texts := []string{s.text}
		return &node{
			kind: textsKind, at: s.at, quoted: s,
			eval: func(*episodeRun) (value, error) { return value{texts: texts}, nil },
		}, nil
	}
	if s.kind == nameToken {
		term, ok := episodeTerms[s.text]
		if ok && len(s.args) == 0 && (!inFunction || b.source.info.Feature(s.text) == nil) {
			term.at = s.at
			return &term, nil
		}
	}
	if s.kind == nameToken && s.text == successTerm && len(s.args) == 0 {
		if f := quality.SuccessOf(b.source.info); f != nil {
			return b.bindSuccess(f, s, inFunction)
		}
	}
	if name := qualityName(s); name != "" && b.source.info.Feature(s.text) == nil {
		return b.bindQuality(s, name)
	}
	return b.bindStream(s)
}

// successTerm is the name of the success of an episode, which a stream states.
const successTerm = "success"

// bindSuccess binds whether the episode has a row with success. In arguments of functions it is the
// stream.
func (b *binder) bindSuccess(f *robocache.Feature, s *syntax, inFunction bool) (*node, error) {
	named := *s
	named.text = f.Key
	stream, err := b.bindStream(&named)
	if err != nil || inFunction {
		return stream, err
	}
	return &node{
		kind: truthKind, at: s.at,
		eval: func(x *episodeRun) (value, error) {
			v, err := stream.eval(x)
			if err != nil {
				return value{}, err
			}
			return value{truth: slices.ContainsFunc(v.channels[0], func(a float64) bool {
				return a > 0
			})}, nil
		},
	}, nil
}

// bindStream binds the name of a stream, with or without a channel.
func (b *binder) bindStream(s *syntax) (*node, error) {
	f := b.source.info.Feature(s.text)
	channel := ""
	if len(s.args) > 0 {
		channel = s.args[0].text
	}
	if f == nil && channel == "" {
		var err error
		if f, err = b.channelOwner(s); err != nil {
			return nil, err
		}
		channel = s.text
	}
	switch {
	case f != nil && f.Kind == robocache.KindText && channel == "":
		return b.rowTexts(f, s.at), nil
	case f == nil || f.Kind != robocache.KindNumeric || f.Ragged():
		return nil, robocache.Misuse("find", robocache.Where{"stream": s.text},
			"expression, character %d: no stream of numbers of that name", s.at).
			WithHint("%s", robocache.Nearest(s.text, b.knownNames()))
	}
	c := &column{feature: f, channel: -1, clock: b.clockOf(f)}
	if channel != "" {
		var err error
		if c.channel, err = channelIndex(f, channel); err != nil {
			return nil, err
		}
	}
	return &node{
		kind: signalKind, width: c.channelCount(), at: s.at, column: c,
		isFlag: f.DType == robocache.Bool && c.channelCount() == 1,
		eval: func(x *episodeRun) (value, error) {
			channels, err := x.read(c)
			return value{channels: channels, clock: c.clock}, err
		},
		reach: func(x *episodeRun) reach { return x.source.index.reachOf(c, x.position) },
	}, nil
}

// knownNames returns the names that an expression may have for this dataset.
func (b *binder) knownNames() []string {
	names := slices.AppendSeq(b.source.info.Keys(), maps.Keys(episodeTerms))
	slices.Sort(names)
	return slices.Compact(names)
}

// clockOf returns the key that names the clock of a stream.
func (b *binder) clockOf(f *robocache.Feature) string {
	if f.Clock == "" {
		return ""
	}
	if b.clocks[f.Clock] == "" {
		b.clocks[f.Clock] = f.Key
	}
	return b.clocks[f.Clock]
}

// rowTexts returns the node of a stream of texts.
func (b *binder) rowTexts(f *robocache.Feature, at int) *node {
	clock := b.clockOf(f)
	return &node{kind: rowTextKind, at: at, eval: func(x *episodeRun) (value, error) {
		n, err := robocache.RowsIn(x.ctx, x.source.ds, x.position, f)
		if err != nil {
			return value{}, err
		}
		texts, err := x.source.ds.Text(x.ctx, f.Key, robocache.RowsOf(x.position, 0, n))
		return value{texts: texts, clock: clock}, err
	}}
}

// channelOwner returns the only stream that has a channel with the name s.text; nil if there is
// none.
func (b *binder) channelOwner(s *syntax) (owner *robocache.Feature, err error) {
	var owners []string
	for i := range b.source.info.Features {
		f := &b.source.info.Features[i]
		isNumeric := f.Kind == robocache.KindNumeric && !f.Ragged()
		if isNumeric && slices.Contains(f.ChannelNames(), s.text) {
			owner = f
			owners = append(owners, f.Key+"["+s.text+"]")
		}
	}
	if len(owners) > 1 {
		return nil, syntaxError(s.at, "several streams have a channel %s", s.text).
			WithHint("Choose one: %s.", strings.Join(owners, ", "))
	}
	return owner, nil
}

// channelIndex returns the index of a channel, given by name or number.
func channelIndex(f *robocache.Feature, channel string) (int, error) {
	names := f.ChannelNames()
	if i := slices.Index(names, channel); i >= 0 {
		return i, nil
	}
	if i, err := strconv.Atoi(channel); err == nil && i >= 0 && i < f.Elements() {
		return i, nil
	}
	return 0, robocache.Misuse("find", robocache.Where{"stream": f.Key},
		"expression: no channel %q of %d", channel, f.Elements()).
		WithHint("%s", robocache.Nearest(channel, names))
}

// signalOf returns n as a signal. A text in quotes is the key of a stream.
func (b *binder) signalOf(n *node) (*node, error) {
	if n.quoted != nil {
		return b.bindStream(n.quoted)
	}
	return n, nil
}
