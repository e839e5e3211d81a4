"""SeqIO registrations: the one package here that imports SeqIO and TensorFlow.

Import a module and call its `register` function, or set the environment variables that it names and
import it (`--gin.MIXTURE_OR_TASK_MODULE="'tasks.ckl'"`).
"""
