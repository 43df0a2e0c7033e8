package view

const (
	frameBudget    = 48 << 20  // JPEGs that were made
	timelineBudget = 64 << 20  // timestamps of the episodes that were looked at last
	decoderBudget  = 96 << 20  // idle decoders
	readBudget     = 512 << 20 // what one series reads of the dataset
	blockBytes     = 4 << 20   // read at once
	maxChannels    = 64        // of a stream in one answer
	maxPoints      = 4000      // rows of a series that are given as they are
	maxCloud       = 200_000   // points of a cloud
	maxTexts       = 2000      // rows of texts in one answer
	maxSide        = 2048      // pixels of a frame that is sent
	maxBody        = 1 << 20   // of a request
	maxViews       = 4         // alignments that are kept
	framesAhead    = 12        // rows decoded beside the one that was asked for
	doctorRows     = 500_000   // a dataset of more rows is diagnosed when somebody asks
)
