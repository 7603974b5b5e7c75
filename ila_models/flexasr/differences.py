"""Where the published ILA of FlexASR is not its SystemC hardware: one row a difference, by what each of them does."""

BEHAVIOURS = ("hardware", "published_ila")
DIFFERENCES = (
    ("configuration after reset", "counts 1, all else 0", "0"),
    ("address bits 3:0", "ignored", "decoded"),
    ("reads of triggers", "start the engine, too; they return nothing", "no instruction"),
    ("reads of configuration, weights and input buffers", "return what was written", "no instruction"),
    ("SRAM configuration", "a word a partition, without effect", "no instruction"),
    ("start of one processing element", "any access to 0x3X000000…0x3X0FFFFF", "no instruction"),
    ("interrupt", "a pulse, gone when taken", "stays 1 after the first engine that ends"),
    ("vectors a timestep in the large buffer", "from the memory manager", "from the engine's num_vector_1 or num_vector_2"),
    ("large-buffer memory index 4…7", "its low two bits", "manager 3"),
    ("addresses beyond the input, activation and small buffers", "wrap at 256, 32 and 1024 vectors", "are vectors of their own"),
    ("buffer_addr_base of act_mngr", "5 bits", "16 bits"),
    ("Control modes 1 and 2", "read timestep t // 2; backward t = 2 (T − k) − 1", "read timestep t; backward t = 2 (T − k) + 1"),
    ("undefined activation instructions", "do nothing", "the element, and Control with it, does not end"),
    ("activation registers R0…R3", "keep their values", "are 0 at every start of an element"),
    ("LayerReduce of an odd num_timestep_1", "combines the pair (T − 1, T), too", "stops before it"),
    ("LayerReduce of num_timestep_1 below 2", "combines one pair", "does not end"),
    ("LayerReduce modes 3…7", "add", "does not end"),
    ("ZeroPadding of several vectors", "vectors 0, 1, 2, …", "vectors 0, 1, 3, 6, …"),
    ("Attention, offset of a score vector", "8 bits: wraps at 1024 rows", "16 bits"),
)
